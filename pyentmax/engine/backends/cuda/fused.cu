/* What fusedmax and oscarmax need beside sparsemax: smoothing, pooling, and means over runs. The
 * NumPy twins, with the derivations, are pyentmax/reference/mappings/{_fused,fusedmax,oscarmax}.py; pool
 * does what `textbook` in the last of them does.
 *
 *     smooth<T>(z, mask, u, batch, strength)
 *         u = argmin ½‖u − z‖² + λ Σ |u_{j+1} − u_j|, less what is the same for all, with −∞ for
 *         what is ruled out or gets nothing
 *     pool<C>(x, u, sums, sizes, batch, strength)
 *         for scores x in falling order: the falling sequence nearest to x_i + λi, less its largest
 *     run_products<T>(p, v, out, batch, strength)
 *         v's mean over each run of equal p > 0, less that over the support; 0 off it
 *
 * One row to a thread, since these go along it one by one: batches are what a GPU has. Blocks of
 * ROW_THREADS, grid ⌈rows / ROW_THREADS⌉, no shared memory. z, p, v, out: Operand of T; u: of
 * Compute<T>; mask: of bool, `at` null for none; for pool, x and u of C, which is float or double,
 * and scratch like x, sums of double and sizes of unsigned. All sums are double's: a run of entries
 * must not drift.
 */
#include "rows.cuh"

constexpr int ROW_THREADS = 64;

/* A power of two, to keep sums of scores near the largest double from overflowing. */
constexpr double HEADROOM = 1. / (1ll << 32);

/* The scores of one row relative to the largest, times HEADROOM, and no lower than a bound. */
template <typename T> struct Gaps {
    const Line<const T> z;
    const Line<const bool> mask;
    double top, lowest;

    __device__ Gaps(const Line<const T> &z, const Line<const bool> &mask, unsigned n)
        : z(z), mask(mask), top(-infinity<double>()), lowest(-infinity<double>()) {
        for (unsigned i = 0; i < n; i++) top = Larger()(top, (double)score_at<T>(z, mask, i));
    }
    __device__ bool is_there(unsigned i) const {
        return score_at<T>(z, mask, i) != -infinity<Compute<T>>();
    }
    __device__ double unbounded(unsigned i) const {
        return (double)score_at<T>(z, mask, i) * HEADROOM - top * HEADROOM;
    }
    __device__ double operator()(unsigned i) const {
        const double gap = unbounded(i);
        return gap > lowest ? gap : lowest;
    }
    __device__ bool is_above_lowest(unsigned i) const {
        return is_there(i) && unbounded(i) > lowest;
    }
    /* How far below the largest the lowest score there is lies. */
    __device__ double range(unsigned n) const {
        double most = 0;
        for (unsigned i = 0; i < n; i++)
            if (is_there(i)) most = Larger()(most, -(*this)(i));
        return most;
    }
};

/* Smooths entries first … last of y, all of them neighbours, in one pass with steps back (Condat
 * 2013), and hands each run to `write_run`, with how many of its neighbours lie higher less how
 * many lie lower.
 *
 * A run that begins at `start` may have any value from `low` to `high` so far, and what it passes
 * on to the entry behind `at`, the slope of |u_{j+1} − u_j|, is then `out_low` or `out_high`: at
 * most λ either way. Where even the lowest value passes on too little, the run has to end at
 * `low_end`, where `low` was last binding, with a fall; likewise a rise at `high_end`. What ends
 * has the mean of its scores, moved by λ/n towards either neighbour: exact, whatever the search
 * has rounded. */
template <class Y, class Write>
__device__ inline void smooth_part(const Y &y, unsigned first, unsigned last, double strength,
                                   const Write &write_run) {
    unsigned start = first, at = first, low_end = first, high_end = first;
    double low = y(first) - strength, high = y(first) + strength;
    double out_low = strength, out_high = -strength;
    int before = 0; /* whether the run before lies higher (1) or lower (−1) */
    const auto write = [&](unsigned end, int behind) {
        write_run(start, end, before + behind);
        before = -behind;
        start = end + 1;
    };
    /* A step either ends a run, which begins behind the one before, or advances `at`: of a run, at
     * most to the end. So there are no more than this; a NaN, which compares with nothing, ends it
     * earlier. */
    const unsigned length = last - first + 1, most = length * (length + 1); /* of 4096 at most */
    for (unsigned step = 0; step < most; step++) {
        if (at == last) { /* nothing is passed on behind the end */
            if (out_low < 0) {
                write(low_end, -1);
                at = low_end = start;
                low = y(at);
                out_low = strength;
                out_high = y(at) + strength - high;
            } else if (out_high > 0) {
                write(high_end, 1);
                at = high_end = start;
                high = y(at);
                out_high = -strength;
                out_low = y(at) - strength - low;
            } else {
                write(last, 0);
                return;
            }
            continue;
        }
        const double next = y(at + 1);
        if (next + out_low < low - strength) {
            write(low_end, -1);
            at = low_end = high_end = start;
            low = y(at);
            high = low + 2 * strength;
            out_low = strength;
            out_high = -strength;
        } else if (next + out_high > high + strength) {
            write(high_end, 1);
            at = low_end = high_end = start;
            high = y(at);
            low = high - 2 * strength;
            out_low = strength;
            out_high = -strength;
        } else {
            at++;
            out_low += next - low;
            out_high += next - high;
            if (out_low >= strength) {
                low += (out_low - strength) / (at - start + 1);
                out_low = strength;
                low_end = at;
            }
            if (out_high <= -strength) {
                high += (out_high + strength) / (at - start + 1);
                out_high = -strength;
                high_end = at;
            }
        }
    }
    write(last, 0); /* never: every step was counted */
}

/* Fused entries: u = mean + λ·pull/size, the three kept apart: a λ that swamps the scores would
 * round away what parts two peaks, which lie by the same multiple of it below theirs. */
struct Run {
    double mean;
    int pull, size;

    __device__ double height_above(const Run &other, double strength) const {
        const double pulls = (double)pull * other.size - (double)other.pull * size;
        return mean - other.mean + strength * (pulls / ((double)size * other.size));
    }
};

/* A score at or below −1 − 5λ gets nothing, and the chain is cut there: its neighbours score less
 * by λ, as fusedmax.py says. λ above the range of n scores times n does nothing that this much does
 * not. And u is less its largest, in double: where λ is large, that may lie far below the largest
 * score, and beside it the differences that count would be rounded away. */
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    smooth(Operand<const T> z, Operand<const bool> mask, Operand<Compute<T>> u_at, Batch batch,
           Parameter strength) {
    typedef Compute<T> C;
    const unsigned row = blockIdx.x * ROW_THREADS + threadIdx.x, n = batch.n;
    if (row >= batch.rows) return;
    const Place place(batch, row);
    const Line<C> u(u_at, place);
    const double given = value_at(strength, place);
    Gaps<T> y({z, place}, {mask, place}, n);
    if (!is_finite(y.top) || !(given >= 0)) {
        const C instead = y.top == -infinity<double>() ? -infinity<C>() : not_a_number<C>();
        for (unsigned i = 0; i < n; i++) u.at[i * u.step] = instead;
        return;
    }
    y.lowest = -(1 + 5 * given) * HEADROOM;
    const double most = n * y.range(n), weight = given * HEADROOM < most ? given * HEADROOM : most;
    /* The largest u first; 0 will do where λ is so small that u is not far from it. */
    const bool is_small = !(given > 1);
    Run highest = {0, 0, is_small};
    for (bool found = is_small;; found = true) {
        for (unsigned i = 0; i < n; i++) {
            if (!y.is_above_lowest(i)) {
                u.at[i * u.step] = -infinity<C>();
                continue;
            }
            const unsigned first = i;
            while (i + 1 < n && y.is_above_lowest(i + 1)) i++;
            /* the ends of the run that have an edge to an entry with nothing; n is none */
            const unsigned left = first > 0 && y.is_there(first - 1) ? first : n;
            const unsigned right = i + 1 < n && y.is_there(i + 1) ? i : n;
            const auto less_edges = [&](unsigned j) {
                return y(j) - weight * ((j == left) + (j == right));
            };
            const auto take_run = [&](unsigned start, unsigned end, int pull) {
                double sum = 0;
                for (unsigned j = start; j <= end; j++) sum += y(j);
                pull -= (start == left) + (end == right);
                const int size = (int)(end - start + 1);
                const Run run = {sum / size, pull, size};
                const double height = run.height_above(highest, weight);
                if (!found) {
                    highest = highest.size == 0 || height > 0 ? run : highest;
                    return;
                }
                const C gap = (C)(height / HEADROOM);
                for (unsigned j = start; j <= end; j++) u.at[j * u.step] = gap;
            };
            smooth_part(less_edges, first, i, weight, take_run);
        }
        if (found) return;
    }
}

/* Each entry is a block; as long as the last block's mean exceeds that of the one before, the two
 * are one. */
template <typename C>
__global__ void __launch_bounds__(ROW_THREADS)
    pool(Operand<const C> x_at, Operand<C> u_at, Operand<double> sums_at,
         Operand<unsigned> sizes_at, Batch batch, Parameter strength) {
    const unsigned row = blockIdx.x * ROW_THREADS + threadIdx.x, n = batch.n;
    if (row >= batch.rows) return;
    const Place place(batch, row);
    const Line<C> u(u_at, place);
    const Line<double> sums(sums_at, place);
    const Line<unsigned> sizes(sizes_at, place);
    const double given = value_at(strength, place);
    const Gaps<C> y({x_at, place}, {Operand<const bool>{nullptr, 0, 0, 0, 0}, place}, n);
    if (!is_finite(y.top) || !(given >= 0)) {
        const C instead = y.top == -infinity<double>() ? -infinity<C>() : not_a_number<C>();
        for (unsigned i = 0; i < n; i++) u.at[i * u.step] = instead;
        return;
    }
    const double range = y.range(n), weight = given * HEADROOM < range ? given * HEADROOM : range;
    unsigned blocks = 0, there = 0;
    for (; there < n && y.is_there(there); there++) {
        double sum = y(there) + weight * there;
        unsigned size = 1;
        while (blocks > 0) {
            const double before = sums.at[(blocks - 1) * sums.step];
            const unsigned many = sizes.at[(blocks - 1) * sizes.step];
            if (!(sum / size > before / many)) break;
            sum += before;
            size += many;
            blocks--;
        }
        sums.at[blocks * sums.step] = sum;
        sizes.at[blocks * sizes.step] = size;
        blocks++;
    }
    const double largest = sums.at[0] / sizes.at[0];
    unsigned i = 0;
    for (unsigned block = 0; block < blocks; block++) {
        const unsigned size = sizes.at[block * sizes.step];
        const double gap = (sums.at[block * sums.step] / size - largest) / HEADROOM;
        for (unsigned k = 0; k < size; k++, i++) u.at[i * u.step] = (C)gap;
    }
    for (; i < n; i++) u.at[i * u.step] = -infinity<C>();
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    run_products(Operand<const T> p_at, Operand<const T> v_at, Operand<T> out_at, Batch batch,
                 Parameter strength) {
    typedef Compute<T> C;
    const unsigned row = blockIdx.x * ROW_THREADS + threadIdx.x, n = batch.n;
    if (row >= batch.rows) return;
    const Place place(batch, row);
    const Line<const T> p(p_at, place), v(v_at, place);
    const Line<T> out(out_at, place);
    const double given = value_at(strength, place);
    const bool fuses = given > 0;
    double sum = 0;
    unsigned size = 0;
    bool broken = !(given >= 0);
    for (unsigned i = 0; i < n; i++) {
        const C here = to_compute(p.at[i * p.step]);
        if (here == 0) continue;
        broken |= here != here;
        sum += to_compute(v.at[i * v.step]);
        size++;
    }
    const double mean = broken ? not_a_number<double>() : sum / size;
    for (unsigned i = 0; i < n;) {
        const C here = to_compute(p.at[i * p.step]);
        double part = 0;
        unsigned end = i;
        do {
            if (here != 0) part += to_compute(v.at[end * v.step]);
            end++;
        } while (fuses && end < n && (C)to_compute(p.at[end * p.step]) == here);
        const C value = here == 0 ? (C)0 : (C)(part / (end - i) - mean);
        for (; i < end; i++) out.at[i * out.step] = from_compute<T>(value);
    }
}
