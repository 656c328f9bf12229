#define INFINIOP_ISA avx2
#include "kernels.h"
