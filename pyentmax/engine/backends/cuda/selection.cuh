/* Selection without a sort: the least whole number up to which enough entries count, by halving a
 * bracket, a bit per pass, and often fewer. The number may be an index, or the bits of a float.
 */
#pragma once
#include "forward.cuh"

/* The least number in [least, most] up to which `wanted` entries count, or a larger one up to which
 * exactly so many do. count(number) is how many of this thread's count; `most` must be enough. The
 * result means something to threads that are `moving`. */
template <class Team, typename C, typename Whole, class Count>
__device__ inline Whole selected(Team &team, C wanted, Whole least, Whole most, bool moving,
                                 Count count) {
    for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
        const Whole middle = least + (most - least) / 2;
        C within[1] = {count(middle)};
        team.sum(within);
        if (!moving) continue;
        if (within[0] >= wanted)
            most = middle;
        else
            least = middle + 1;
        moving = least < most && within[0] != wanted;
    }
    return most;
}
