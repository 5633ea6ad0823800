/* Probabilities with upper bounds, of one row, by filling up to a common level: a template on the floating
 * type and on the mapping. The latter is FILLING, which gives functions the mapping's name, GAUGE, what
 * is kept of a gap z - shift <= 0, RAISED, what that fills to at level t, PACE, how fast it does, FULL_AT,
 * the level at which it reaches a bound, GUESS, a level to begin with, and REACH, how far below an entry
 * that is not full there still is something to be had. All are forgotten at the end. The NumPy twins are pyentmax/thresholds/filling.py and solve_shifted of
 * pyentmax/mappings/_bounded.py.
 *
 * p_i = clip(RAISED(a_i, t), 0, u_i) with the level t > 0 at which they sum to a total. Each is linear in t
 * from where it starts to where it is full, so their sum is piecewise linear, and rises. No sort is
 * needed to find t: Newton's step is exact if it crosses no breakpoint, and a bracket keeps it from
 * cycling. All of it is in double, whatever the scores are.
 */

static Filled FILLING(at_level)(const double *a, const double *u, ptrdiff_t n, double t) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        const Filled x = FILLING(at_level)(a, u, half, t);
        const Filled y = FILLING(at_level)(a + half, u + half, n - half, t);
        return (Filled){x.sum + y.sum, x.pace + y.pace, x.started + y.started, x.open + y.open};
    }
    double sum[8] = {0}, pace[8] = {0}, started[8] = {0}, open[8] = {0};
    for (ptrdiff_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            const double bound = u[i + j], raised = RAISED(a[i + j], t), room = bound - raised;
            const double on = raised > 0 ? 1 : 0, moves = room > 0 ? on : 0;
            const double p = raised > 0 ? raised : 0;
            started[j] += on;
            open[j] += moves;
            pace[j] += moves * PACE(a[i + j]);
            sum[j] += p < bound ? p : bound;
        }
    Filled all = {0, 0, 0, 0};
    for (int j = 0; j < 8; j++) {
        all.sum += sum[j];
        all.pace += pace[j];
        all.started += started[j];
        all.open += open[j];
    }
    return all;
}

/* The level where the sum is `total`, and in *rest what of it rounding takes away, from a guess; all is
 * full at the highest level, and the sum there is `most`.
 *
 * While the level rises entries only start and become full, so two levels with equally many of either
 * have no breakpoint between them, and the Newton step from one to the other was exact. Where a step
 * leaves the bracket, the secant through its ends is tried, or its middle, by turns. Ten passes are
 * enough for most rows. From the twentieth on every other one halves the bracket in the order
 * of floating-point numbers, of which there are fewer than 2^63 above 0: 150 passes at most, whatever
 * the row holds. */
static double FILLING(find_level)(const double *a, const double *u, ptrdiff_t n, double total,
                                  double t, double highest, double most, double *rest) {
    double lowest = 0, least = 0, started = -1, open = -1;
    bool secant = false;
    *rest = 0;
    for (int pass = 0; pass < 150; pass++) {
        const Filled now = FILLING(at_level)(a, u, n, t);
        if (now.sum == total) break;
        const double step = (total - now.sum) / now.pace;
        if (now.started == started && now.open == open) {
            *rest = step;
            break;
        }
        if (now.sum < total) {
            lowest = t;
            least = now.sum;
        } else {
            highest = t;
            most = now.sum;
        }
        double next = t + step;
        const bool halve = pass >= 20 && pass % 2 == 0;
        const bool newton = now.pace > 0 && lowest < next && next < highest && !halve;
        if (!newton) {
            secant = !secant;
            const double share = secant ? (total - least) / (most - least) : 0.5;
            next = halve ? middle_float(lowest, highest) : lowest + (highest - lowest) * share;
        }
        if (next == t) break;
        started = newton ? now.started : -1;
        open = now.open;
        t = next;
    }
    return t;
}

/* The largest score that matters, if bounds far above have no room for the total.
 *
 * Say that scores down to z_c have just bounds enough for it. An entry that is not full leaves nothing to
 * those REACH below it, but for what rounding hides. So were it REACH above z_c, all would have to come
 * from scores above z_c, whose bounds do not suffice. Hence what is REACH above z_c is full. */
static double FILLING(first_shift)(const double *score, const double *bound, ptrdiff_t n,
                                   double total, double *spare) {
    const double top = top_of(score, n);
    double low = REACH(total), high = (double)INFINITY;
    if (bounds_within(low, top, score, bound, n, spare) >= total) return top;
    while (high - low > 1) {
        const double gap = middle_float(low, high);
        if (gap == low) break;
        if (bounds_within(gap, top, score, bound, n, spare) >= total)
            high = gap;
        else
            low = gap;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        spare[i] = top - score[i] >= low - REACH(total) ? score[i] : -(double)INFINITY;
    return top_of(spare, n);
}

/* Which entries are full is seen in p: so solve once, and again as long as the largest score at 0 turns
 * out to be full and far above all that are not, which lose digits beside it. What scores higher
 * than these is full, and stays so. room is for ROOM n doubles, n in whole lanes. */
static void FILLING(row)(const REAL *restrict z, const REAL *restrict upper, double total,
                         REAL *restrict p, ptrdiff_t n, double *restrict room) {
    const REAL top = TYPED(top_score)(z, n);
    if (!(top > -(REAL)INFINITY && top < (REAL)INFINITY && total > 0)) {
        TYPED(fill)(p, n, top < 0 && total > 0 ? (REAL)0 : (REAL)NAN);
        return;
    }
    const ptrdiff_t padded = whole_lanes(n);
    double *score = room, *bound = room + padded, *a = room + 2 * padded, *u = room + 3 * padded;
    double *spare = room + 4 * padded;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double here = z[i], most = upper[i];
        bound[i] = here > -(double)INFINITY ? most : 0;
        score[i] = most > 0 ? here : -(double)INFINITY;
    }
    for (ptrdiff_t i = n; i < padded; i++) {
        bound[i] = 0;
        score[i] = -(double)INFINITY;
    }
    if (sum_of(bound, n) <= total * (1 + ROUNDING)) { /* all are full, but for rounding */
        for (ptrdiff_t i = 0; i < n; i++) p[i] = (REAL)bound[i];
        return;
    }
    double shift = FILLING(first_shift)(score, bound, padded, total, spare);
    for (int shifts = 0; shifts < 4; shifts++) {
        for (ptrdiff_t i = 0; i < padded; i++) spare[i] = score[i] > shift ? bound[i] : 0;
        const double left = total - sum_of(spare, padded);
        for (ptrdiff_t i = 0; i < padded; i++) {
            const double gap = score[i] - shift;
            a[i] = GAUGE(gap > -DBL_MAX ? gap : -DBL_MAX);
        }
        for (ptrdiff_t i = 0; i < padded; i++) {
            const bool there = score[i] <= shift && score[i] > -(double)INFINITY;
            a[i] = there ? a[i] : 0;
            u[i] = there ? bound[i] : 0;
        }
        for (ptrdiff_t i = 0; i < padded; i++) spare[i] = u[i] > 0 ? FULL_AT(a[i], u[i]) : 0;
        const double highest = top_of(spare, padded);
        for (ptrdiff_t i = 0; i < padded; i++) spare[i] = u[i] > 0 ? 1 : 0;
        const double guess = GUESS(left, sum_of(a, padded), sum_of(spare, padded));
        double t = 0, rest = 0;
        if (left > 0)
            t = FILLING(find_level)(a, u, padded, left, guess < highest ? guess : highest, highest,
                                    sum_of(u, padded), &rest);
        for (ptrdiff_t i = 0; i < n; i++) {
            double raised = RAISED(a[i], t) + PACE(a[i]) * rest;
            raised = raised > 0 ? raised : 0;
            raised = raised < u[i] ? raised : u[i];
            raised = score[i] > shift ? bound[i] : raised;
            p[i] = (REAL)raised;
            spare[i] = p[i] < bound[i] ? score[i] : -(double)INFINITY;
        }
        const double open_top = top_of(spare, n);
        if (!(open_top > -(double)INFINITY && shift - open_top > 1)) break;
        shift = open_top;
    }
}

#undef FILLING
#undef GAUGE
#undef RAISED
#undef PACE
#undef FULL_AT
#undef GUESS
#undef REACH
