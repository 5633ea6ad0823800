/* Everything that exists once per floating type. These headers are templates: the including file says
 * what REAL is, and TYPED(name) gives functions its suffix. */
#include "lane_steps.h"
#include "row_steps.h"
#include "block_steps.h"
#include "sparse_rows.h"
#include "jvp_steps.h"

#include "entmax15_rows.h"
#include "softmax_rows.h"
#include "sparsemax_rows.h"
#include "powers.h"
#include "entmax_root.h"
#include "entmax_steep.h"

/* 1/Omega''(p) of each mapping: 0 where p is 0, NaN where p is NaN. */
#define JVP_NAMED(name) TYPED(softmax_##name)
#define CURVATURE(p) (p)
#include "jvp_rows.h"
#define JVP_NAMED(name) TYPED(sparsemax_##name)
#define CURVATURE(p) ((p) > 0 ? (REAL)1 : (p))
#include "jvp_rows.h"
#define JVP_NAMED(name) TYPED(entmax15_##name)
#define CURVATURE(p) SQRT(p)
#include "jvp_rows.h"
#define JVP_NAMED(name) TYPED(budget_sparsemax_##name)
#define CURVATURE(p) ((p) > 0 ? ((p) < 1 ? (REAL)1 : (REAL)0) : (p))
#include "jvp_rows.h"

#include "gufunc_rows.h"
#include "topk_rows.h"
#include "entmax_rows.h"
#include "entmax_jvp.h"
#include "entmax_grad_alpha.h"
#include "loss_rows.h"
#include "entmax_loss_rows.h"
#include "log_rows.h"
#include "smoothed_rows.h"
#include "structured_loops.h"
#include "bounded_rows.h"
#include "normmax_rows.h"
#include "lstm_rows.h"
#include "adam.h"
