/* The table of kernels: a line for each header that has some. builds/table.h includes it twice, for
 * what the headers define and then, with KERNEL_TABLE defined, for their rows. A new kernel is its
 * header and a line here. */
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"
#include "mappings/entmax15.h"
#include "mappings/entmax.h"
#include "mappings/entmax_jvp.h"
#include "mappings/topk_softmax.h"
#include "mappings/topk_sparsemax.h"
#include "mappings/fusedmax.h"
#include "mappings/oscarmax.h"
#include "mappings/permutahedron.h"
#include "mappings/csoftmax.h"
#include "mappings/csparsemax.h"
#include "mappings/budget_sparsemax.h"
#include "mappings/normmax.h"
#include "mappings/separable_jacobian.h"

#include "losses/softmax.h"
#include "losses/sparsemax.h"
#include "losses/entmax15.h"
#include "losses/entmax.h"
#include "losses/topk_sparsemax.h"

#include "attention/entmax_rows.h"
#include "attention/compressed_rows.h"
#include "attention/few_queries.h"
#include "attention/given_keys.h"
#include "attention/screen.h"
#include "attention/product.h"

#include "training/lstm.h"
#include "training/adam.h"
