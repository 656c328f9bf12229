#define INFINIOP_ISA avx512
#include "kernels.h"
