"""Spelling in plain Python: a sparse model learns past forms and lists all that it finds possible.

Letter by letter it writes *stopped* for *stop*. By 1.5-entmax it chooses letters to copy and to
write; most get a probability of exactly zero, so a list of all possible forms can be complete.

Floats are only added, subtracted, multiplied, divided and rooted, in the order written: a port that
rounds each result as IEEE 754 says (no fused multiply-add) prints the same checksums.
"""

from math import sqrt

VERBS = """
act add adopt allow amuse annoy answer appear apply arrive ask attack back bake balance ban bang bar
bat beam beep beg behave blame blink book borrow bounce bow box brake brush bump burn call camp care
carry carve change charge chase cheat check chip choke chop clap clean clear clip close clog comb
copy cough cover crack cram crash cross cry cure curve dam dance dare decide delay deny dine dip
disarm doubt drag drain dream dress drip drop drown drum dry dust end enter envy fade fan fax fear
fence file fill fire fit fix flap flash flip fry glow glue grab grate grin grip guard guide happen
harm hate heap help hop hope hover hug hum hunt hurry iron jam jog join joke judge jump kick kill
kiss knock label land last laugh learn lick lie like list listen live load long look love man mark
matter mix mob move nail name need nest nod note nap open order pack park pass pat peg pin plan
plant play plug poke pop pray print pump rain reply rob rot rub ruin save scan scare scrub shiver
shop sign sip skip slap slip smile smoke sob sort spot stay step stir stop strip stun study tap test
tie tip touch trap travel trim trip try tug turn visit wag wait walk want wash wave whip wink work
worry wrap yell zoom
""".split()
STRESSED = "admit commit occur omit permit prefer refer regret submit transfer".split()


def past_form(verb):
    """The form that follows from the rules of spelling."""
    vowels = [letter in "aeiou" for letter in verb]
    if verb[-1] == "y" and not vowels[-2]:
        return verb[:-1] + "ied"
    short = vowels.count(True) == 1 and vowels[-2] and verb[-1] not in "ewxy"
    return verb + verb[-1] * (short or verb in STRESSED) + "ed"[verb[-1] == "e" :]


# --- a tape: all numbers that were computed, in order ---------------------------------------------
class Node:
    """A number, the numbers that it was computed from, and its slope in each of them."""

    __slots__ = ("gradient", "parents", "slopes", "value")
    tape = []

    def __init__(self, value, parents=(), slopes=()):
        self.value, self.parents, self.slopes, self.gradient = value, parents, slopes, 0.0
        if parents:
            self.tape.append(self)


def backward(tape):
    """Empty the tape from its end, adding to the gradients of the parents of each node."""
    while tape:
        node = tape.pop()
        if node.gradient:  # exactly 0 for the scores of all letters of probability 0
            for parent, slope in zip(node.parents, node.slopes, strict=True):
                parent.gradient += node.gradient * slope


def linear(rows, x):
    """The dot product of each row with x, a node each: a node has many parents."""
    values, products = [node.value for node in x], []
    for row in rows:
        weights, total = [node.value for node in row], 0.0
        for weight, value in zip(weights, values, strict=True):
            total += weight * value  # not by `sum`, which rounds otherwise from Python 3.12 on
        products.append(Node(total, row + x, values + weights))
    return products


def entmax15(z):
    """argmax_p p·z + H(p) over the simplex: p = [z/2 − τ]²₊ with Σp = 1 (Peters et al. 2019)."""
    top, total, squares, tau = max(z), 0.0, 0.0, 0.0
    for k, score in enumerate(sorted(z, reverse=True), 1):
        x = (score - top) / 2
        total, squares = total + x, squares + x * x
        mean = total / k
        new = mean - sqrt(max(0.0, (1 - squares) / k + mean * mean))  # if the k largest have p > 0
        tau = new if new <= x else tau
    roots = [max(0.0, (score - top) / 2 - tau) for score in z]
    return [root * root for root in roots]


def attention(z):
    """1.5-entmax of nodes; its Jacobian is diag(s) − s sᵀ/Σs with s = √p."""
    p = entmax15([node.value for node in z])
    s, total = [sqrt(x) for x in p], 0.0
    for root in s:
        total += root
    return [
        Node(x, z, [a * ((j == k) - b / total) for k, b in enumerate(s)])
        for j, (x, a) in enumerate(zip(p, s, strict=True))
    ]


def entmax15_loss(z, y):
    """The Fenchel-Young loss p·z + H(p) − z_y, H(p) = 4/3 (1 − Σp√p); its gradient is p − e_y."""
    p = entmax15([node.value for node in z])
    loss = 4 / 3 - z[y].value
    for x, node in zip(p, z, strict=True):
        loss += x * node.value - 4 / 3 * x * sqrt(x)
    return Node(loss, z, [x - (k == y) for k, x in enumerate(p)])


# --- the model ------------------------------------------------------------------------------------
LETTERS = ".abcdefghijklmnopqrstuvwxyz"  # the dot stands before a word, and ends it
SHAPES = {"embed": (27, 8, 1), "hidden": (20, 65, 0.2), "copy": (7, 21, 0.2), "write": (8, 21, 0.2)}


def uniform(seed):
    """Numbers between −1 and 1, by the generator of Lewis, Goodman and Miller (1969)."""
    while True:
        seed = seed * 16807 % 2147483647
        yield seed / 1073741824 - 1


def scores(w, verb, written):
    """The scores of what may follow: read are the last letter written and a window of the verb."""
    text, one = "....." + verb + "." * (len(written) + 7), Node(1.0)
    window = [w["embed"][LETTERS.index(c)] for c in text[len(written) :][:7]]
    last = w["embed"][LETTERS.index(("." + written)[-1])]
    x = [node for letter in [*window, last] for node in letter] + [one]
    h = [Node(max(a.value, 0.0), [a], [float(a.value > 0)]) for a in linear(w["hidden"], x)]
    p = attention(linear(w["copy"], h + [one]))  # which letter of the window it copies
    rows = [row + [letter[i] for letter in window] for i, row in enumerate(w["write"])]
    return linear(w["embed"], linear(rows, h + [one] + p))


def forms(w, verb, most=500):
    """All possible forms with their probabilities, the best first; whether these are all."""
    found, prefixes = [], [(1.0, "")]
    while prefixes and most:
        (q, prefix), most = prefixes.pop(), most - 1
        p = entmax15([node.value for node in scores(w, verb, prefix)])
        Node.tape.clear()
        found += [(q * p[0], prefix)] * (p[0] > 0)
        prefixes += [(q * x, prefix + c) for x, c in zip(p[1:], LETTERS[1:], strict=True) if x > 0]
    return sorted(found, reverse=True), not prefixes


def add_gradient(w, verb, share):
    """Add the gradient of a verb's loss, times the share, to those of the weights; the loss."""
    form, total = past_form(verb), 0.0
    for t, letter in enumerate(form + "."):
        loss = entmax15_loss(scores(w, verb, form[:t]), LETTERS.index(letter))
        total, loss.gradient = total + loss.value, share
        backward(Node.tape)
    return total


def train(w, weights, verbs, updates, rng):
    """Adam (Kingma and Ba 2015), with a rate that falls to zero."""
    c1, c2, first, second = 1.0, 1.0, [0.0] * len(weights), [0.0] * len(weights)
    for update in range(updates):
        for node in weights:
            node.gradient = 0.0
        for _ in range(4):
            add_gradient(w, verbs[int((next(rng) + 1) / 2 * len(verbs))], 0.25)
        c1, c2, rate = c1 * 0.9, c2 * 0.99, 0.02 * (1 - update / updates)
        for i, node in enumerate(weights):
            first[i] += 0.1 * (node.gradient - first[i])
            second[i] += 0.01 * (node.gradient * node.gradient - second[i])
            node.value -= rate * (first[i] / (1 - c1)) / (sqrt(second[i] / (1 - c2)) + 1e-8)


def checksum(stage, numbers):
    """Print a sum in which the place of a number counts, in integers of at most 64 bits."""
    print(f"  {sum(i * int(1e9 * x) for i, x in enumerate(numbers, 1)):22}  {stage}")


def main(seeds=(1, 2, 3), updates=1500, new=("blog", "google", "rebel")):
    for seed in seeds:
        rng = uniform(seed)
        verbs = [verb for _, verb in sorted((next(rng), verb) for verb in VERBS + STRESSED)]
        unseen, seen = verbs[:60], verbs[60:]
        w = {
            name: [[Node(largest * next(rng)) for _ in range(n)] for _ in range(m)]
            for name, (m, n, largest) in SHAPES.items()
        }
        weights = [node for rows in w.values() for row in rows for node in row]
        print(f"seed {seed}: {len(weights)} weights, {len(seen)} verbs to learn; checksums")
        checksum("the order of the verbs", [LETTERS.index(c) for verb in verbs for c in verb])
        checksum("the first weights", [node.value for node in weights])
        loss = add_gradient(w, "stop", 1.0)
        checksum("the loss of stop and its gradient", [loss, *(node.gradient for node in weights)])
        train(w, weights, seen, updates, rng)
        checksum("the learned weights", [node.value for node in weights])
        lists = [(past_form(verb), forms(w, verb)[0]) for verb in unseen]
        checksum("the probabilities of all forms", [p for _, found in lists for p, _ in found])
        right = sum([form for _, form in found[:1]] == [correct] for correct, found in lists)
        print(f"  {right} of {len(unseen)} unseen verbs are right")
        for verb in new:
            found, complete = forms(w, verb)
            print(f"  {verb}:", ", ".join(f"{form} {p:.4f}" for p, form in found))
            print("    no other" if complete else "    another", "string has a probability above 0")


if __name__ == "__main__":
    main()
