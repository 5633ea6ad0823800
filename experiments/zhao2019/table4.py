"""Tables 1 and 4: translation with the k largest weights of each head (Zhao et al. 2019).

What came out (Multi30k, German to English, 3,200 updates, two seeds): softmax 35.9 and 35.6 BLEU;
k = 4 from the start has 3.0 and 2.8 less (95%: 1.9 to 3.8), and 8, 16 and 32 are level (−0.6 to
+0.2). The paper gains by top-k (its Table 1), which is not held here; that sparsemax is behind both
(31.2 there, 32.5 here) is. Its Table 4 says that sparsemax and α-entmax are far slower: here all
cost the same (`own/speeds.py`). Twenty minutes a model on one core.

    python -m experiments.zhao2019.table4 --data FOLDER
"""

from __future__ import annotations

import sys

from experiments.translation import KS, experiment

ROWS = ("transformer-1", *(f"transformer-top{k}" for k in KS), "transformer-top8-late")

EXPERIMENT = experiment("zhao2019/table4", __doc__, ROWS)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
