// libFuzzer target of the topology reader READER: aborts where a promise of tests/topology/promises.h is broken.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/topology/promises.h"
#include "topology/read.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string broken = tutti::topology::test::broken_promise(tutti::topology::READER, text);
  if (broken.empty()) return 0;
  std::fprintf(stderr, "%s\n", broken.c_str());
  std::abort();
}
