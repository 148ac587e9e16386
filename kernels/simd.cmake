# Instruction-set flags of single files; what they hold runs only after kernels.cpp has asked the processor.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(tutti_avx2_flags -mavx2 -mfma -mf16c)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/avx2.cpp PROPERTIES COMPILE_OPTIONS "${tutti_avx2_flags}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/avx512.cpp PROPERTIES COMPILE_OPTIONS
    "${tutti_avx2_flags};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mprefer-vector-width=512")
endif()
