// Marks functions of which there should be little, not fast: what they wait for (nvcc, files, a launch) takes many
// times as long as they do.
#pragma once
#define INFINIOP_COLD __attribute__((cold))
