"""Tables 2 and 3: recurrent translation with each attention and loss (Peters et al. 2019, §4.2).

What came out (Multi30k, German to English, 1,200 updates, three seeds): 30.7 BLEU with 1.5-entmax
for both, 22.4 with softmax, 27.3 with sparsemax (one seed): 1.5 is the best of the three, as in the
paper, at this budget by far. Supports fall with α: attended 19.8, 4.9 and 2.5 of 19.8 positions
(paper 24.25, 5.55, 3.75), possible tokens 4,000, 92 and 25 (17,993, 16, 8). English to German, one
seed: 27.5, 21.0 and 22.8. The paper's rate is worth 0.8 BLEU (95%: 0.1 to 1.5). After 400 updates
byte pairs are level with unigram pieces (−0.2, −0.9 to +0.6), and so are separate vocabularies
(−0.4, −1.2 to +0.4). Six minutes a model on one core.

    python -m experiments.peters2019.table2 --data FOLDER --seed 0 1 2
"""

from __future__ import annotations

import sys

from experiments.translation import experiment

ROWS = ("rnn-1-1", "rnn-1.5-1.5", "rnn-2-2")

EXPERIMENT = experiment("peters2019/table2", __doc__, ROWS)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
