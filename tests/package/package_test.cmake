# A script for `cmake -P`, see CMakeLists.txt here. It fails at the first command that does.
set(prefix ${BUILD}/package-test/installed)
set(work ${BUILD}/package-test/example)
file(REMOVE_RECURSE ${BUILD}/package-test)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " line "${ARGN}")
    message(FATAL_ERROR "${line}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# 1 + 2 on both ranks.
function(expect_sums program)
  run(${prefix}/bin/tutti run -n 2 ${program})
  if(NOT output MATCHES "\\[0\\] rank 0 of 2: 3" OR NOT output MATCHES "\\[1\\] rank 1 of 2: 3")
    message(FATAL_ERROR "${program} printed:\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${work} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${work})
expect_sums(${work}/example)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(pkg-config --cflags --libs tutti)
separate_arguments(flags UNIX_COMMAND "${output}")
set(nccl ${prefix}/${LIBDIR}/tutti-nccl)
run(${COMPILER} -x c -I${prefix}/include/tutti-nccl -I${SOURCE}/../../.. ${SOURCE}/../../nccl/program.c -x none -L${nccl} -lnccl -lm -ldl -lpthread
    -Wl,-rpath,${nccl} -o ${work}/by_nccl)
run(${work}/by_nccl processes 2)
if(NOT output MATCHES "300 cases right on 2 ranks")
  message(FATAL_ERROR "by_nccl printed:\n${output}")
endif()

run(${COMPILER} -std=c++20 ${SOURCE}/example.cpp ${flags} -Wl,-rpath,${prefix}/${LIBDIR} -o ${work}/by_pkg_config)
expect_sums(${work}/by_pkg_config)
