// What this header declares comes with cuda_shim.h.
