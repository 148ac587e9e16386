# transport/rdma needs libibverbs' headers to build, and the library itself only at run time. Without the headers, absent.cpp stands for it.
find_path(TUTTI_VERBS_HEADERS infiniband/verbs.h)
if(TUTTI_VERBS_HEADERS)
  list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/transport/rdma/absent.cpp)
else()
  message(STATUS "no <infiniband/verbs.h>: building without RDMA (libibverbs-dev)")
  list(FILTER sources EXCLUDE REGEX "/transport/rdma/(verbs|device|memory|queue|queue_pair|socket_queue|gpu_direct|registrations|landed|grants|resuming|connection|transport)\\.cpp$")
endif()
