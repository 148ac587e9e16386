# What every target of this project is compiled with.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)

add_library(tutti_options INTERFACE)
target_include_directories(tutti_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(tutti_options INTERFACE Threads::Threads fmt::fmt OpenSSL::SSL OpenSSL::Crypto)
# -ffp-contract=off: the same bits whatever the compiler would fuse.
target_compile_options(tutti_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror -Wno-missing-field-initializers
  -ffp-contract=off -fno-omit-frame-pointer)
# GCC 12 warns of std::string's own copies (GCC bug 105329).
target_compile_options(tutti_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# And, where headers are precompiled, of more of the standard library's insides: it forgets that they are a system's.
if(TUTTI_BUILD_ONCE)
  target_compile_options(tutti_options INTERFACE -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-maybe-uninitialized
                                                 -Wno-dangling-pointer -Wno-free-nonheap-object)
endif()
if(TUTTI_SANITIZE)
  target_compile_options(tutti_options INTERFACE -fsanitize=${TUTTI_SANITIZE} -fno-sanitize-recover=all -g1 -O1)   # -g1: enough for stack traces
  # g++ 12 mistrusts std::regex once it carries checks.
  target_compile_options(tutti_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # clang++ 14 cannot assemble coroutines with checks of function types (LLVM issue 49689).
  target_compile_options(tutti_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  # Its warnings are other ones, and more with each version; here it looks for faults.
  target_compile_options(tutti_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-error>)
  target_link_options(tutti_options INTERFACE -fsanitize=${TUTTI_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
