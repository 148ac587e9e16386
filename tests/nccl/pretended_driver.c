/* A libcuda.so.1 that pretends: one GPU, whose memory lies below 1 MiB, where no program has any. It stands in for a driver, so that what the
 * library says to GPU memory and streams shows on a machine without one. */
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  if (attribute != 2 || pointer >= 1 << 20) return 1; /* the host's: it knows nothing of it */
  *(unsigned*)data = 2;
  return 0;
}
