# Headers that nearly every source takes, read once for all targets of the same flags (GCC refuses them where flags differ). For a machine
# that builds everything, and once: ccache finds less with them, and a source that leans on a header which it does not include
# is found without them.
option(TUTTI_PRECOMPILE "Compile common headers once (GCC)" OFF)
set(TUTTI_COMMON_HEADERS <algorithm> <chrono> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector> <fmt/format.h>)

# tutti_precompile(TARGET OWNER [HEADER ...]): TARGET uses what OWNER has; where they are the same, makes it, of these headers, too.
function(tutti_precompile target owner)
  if(NOT TUTTI_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${TUTTI_COMMON_HEADERS} ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
