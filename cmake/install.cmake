# cmake --install BUILD --prefix P: the executable, the C++ API (headers, libraries) and the CMake package `seqfuse`.
# Libraries of torch and pyarrow stay where they are, found by rpath: an installation works only on this machine.
install(TARGETS seqfuse RUNTIME DESTINATION bin)
install(TARGETS seqfuse_engine seqfuse_ops LIBRARY DESTINATION lib)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/seqfuse DESTINATION include)
install(FILES ${PROJECT_SOURCE_DIR}/src/ops/torch/ops.h DESTINATION include/seqfuse)

set(package lib/cmake/seqfuse)
include(CMakePackageConfigHelpers)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/seqfuseConfig.cmake.in ${CMAKE_BINARY_DIR}/seqfuseConfig.cmake
                              INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/seqfuseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/seqfuseConfig.cmake ${CMAKE_BINARY_DIR}/seqfuseConfigVersion.cmake
        DESTINATION ${package})
