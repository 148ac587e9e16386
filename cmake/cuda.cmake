# CUDA: what of it is here, and the kernels. tutti_cuda is made where there is a compiler for it; without one, nothing of it is
# built and the rest does not ask. Nothing here needs a driver or a GPU.
set(TUTTI_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where nvcc is found), ON, OFF")
set(TUTTI_CUDA_CODE "sm_80;sm_90" CACHE STRING "Processors to build machine code for; newer ones take the PTX of compute_80")
set_property(CACHE TUTTI_CUDA PROPERTY STRINGS AUTO ON OFF)

if(NOT TUTTI_CUDA STREQUAL "OFF" AND NOT TUTTI_SANITIZE)
  find_program(TUTTI_NVCC nvcc HINTS ENV CUDAToolkit_ROOT ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(TUTTI_NVCC)
    find_package(CUDAToolkit QUIET)
  endif()
endif()
if(TUTTI_NVCC AND CUDAToolkit_FOUND AND TARGET CUDA::cudart_static)
  set(TUTTI_HAS_CUDA ON)
elseif(TUTTI_CUDA STREQUAL "ON")
  message(FATAL_ERROR "TUTTI_CUDA=ON, but there is no nvcc with a static CUDA runtime: put nvcc on the PATH or set CUDA_PATH")
endif()
if(NOT TUTTI_HAS_CUDA)
  return()
endif()
message(STATUS "CUDA: ${TUTTI_NVCC}, for ${TUTTI_CUDA_CODE}")

# Without CMake's language CUDA, whose check of the compiler takes longer than half of the kernels. -fmad=false: the same bits as
# the host's.
list(JOIN TUTTI_CUDA_CODE "," code)
set(TUTTI_NVCC_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false -Xcompiler=-fPIC,-fvisibility=hidden
  -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include)
set(nvcc ${TUTTI_NVCC})
if(CCACHE)
  set(nvcc ${CCACHE} ${TUTTI_NVCC})
endif()
set(TUTTI_NVCC_LAUNCH ${nvcc})      # with ccache, where it is; for other files of kernels
set(TUTTI_NVCC_CODE "-gencode=arch=compute_80,code=[${code},compute_80]")
foreach(type IN ITEMS i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2)
  set(source ${CMAKE_BINARY_DIR}/cuda/${type}.cu)
  file(CONFIGURE OUTPUT ${source} CONTENT "#define TUTTI_TYPE @type@\n#include <kernels/cuda/type.cuh>\n" @ONLY)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/cuda/${type}.o
    COMMAND ${nvcc} ${TUTTI_NVCC_FLAGS} ${TUTTI_NVCC_CODE} -MD -MF cuda/${type}.d
            -c ${source} -o cuda/${type}.o
    DEPENDS ${source} DEPFILE ${CMAKE_BINARY_DIR}/cuda/${type}.d WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    COMMENT "CUDA kernels of ${type}" VERBATIM)
  list(APPEND tutti_cuda_objects ${CMAKE_BINARY_DIR}/cuda/${type}.o)
endforeach()
foreach(kernel IN ITEMS await carry collect)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/cuda/${kernel}.o
    COMMAND ${nvcc} ${TUTTI_NVCC_FLAGS} ${TUTTI_NVCC_CODE} -MD -MF cuda/${kernel}.d
            -c ${CMAKE_SOURCE_DIR}/kernels/cuda/${kernel}.cu -o cuda/${kernel}.o
    DEPENDS kernels/cuda/${kernel}.cu DEPFILE ${CMAKE_BINARY_DIR}/cuda/${kernel}.d WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    COMMENT "CUDA kernel ${kernel}" VERBATIM)
  list(APPEND tutti_cuda_objects ${CMAKE_BINARY_DIR}/cuda/${kernel}.o)
endforeach()
add_custom_target(tutti_cuda DEPENDS ${tutti_cuda_objects})

list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -isystem OUTPUT_VARIABLE cuda_includes)
set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_device.cpp PROPERTIES COMPILE_DEFINITIONS TUTTI_HAS_CUDA
  COMPILE_OPTIONS "${cuda_includes}")
