# For a machine that builds everything, and once: headers that nearly every source takes are read once for all targets of the same flags
# (GCC refuses them where flags differ), and tests are optimized less. Elsewhere ccache finds more without, and so is the source
# that leans on a header which it does not include.
option(TUTTI_BUILD_ONCE "A build from nothing is done sooner (GCC)" OFF)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(TUTTI_BUILD_ONCE OFF)
endif()
set(TUTTI_COMMON_HEADERS <algorithm> <chrono> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector> <fmt/format.h>)

# tutti_precompile(TARGET OWNER [HEADER ...]): TARGET uses what OWNER has; where they are the same, makes it, of these headers, too.
function(tutti_precompile target owner)
  if(TUTTI_BUILD_ONCE AND target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${TUTTI_COMMON_HEADERS} ${ARGN})
  elseif(TUTTI_BUILD_ONCE)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
