#define INFINIOP_ISA generic
#include "kernels.h"
