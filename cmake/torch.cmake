# libtorch from SEQFUSE_PYTHON's torch. We link its libraries directly instead of using its CMake package,
# which adds its own compiler flags to every CUDA target and needs a CUDA toolkit even for a CPU-only build.
execute_process(COMMAND ${SEQFUSE_PYTHON} ${SEQFUSE_PYTHON_FLAGS} -c "import torch.version as v; print(v.__version__)"
                OUTPUT_VARIABLE SEQFUSE_TORCH_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
if(SEQFUSE_TORCH_VERSION VERSION_LESS 2.9 OR SEQFUSE_TORCH_VERSION VERSION_GREATER_EQUAL 2.13)
  message(WARNING "torch ${SEQFUSE_TORCH_VERSION} is outside the range 2.9 to 2.12; tested with 2.11")
endif()
message(STATUS "torch ${SEQFUSE_TORCH_VERSION} in ${SEQFUSE_TORCH_DIR}")

add_library(seqfuse_torch INTERFACE)
target_include_directories(seqfuse_torch SYSTEM INTERFACE
  ${SEQFUSE_TORCH_DIR}/include ${SEQFUSE_TORCH_DIR}/include/torch/csrc/api/include)
target_link_directories(seqfuse_torch INTERFACE ${SEQFUSE_TORCH_DIR}/lib)
target_link_options(seqfuse_torch INTERFACE
  LINKER:-rpath,${SEQFUSE_TORCH_DIR}/lib LINKER:--no-as-needed)
set(SEQFUSE_TORCH_HAS_CUDA OFF)
# libstdc++ first: libtorch.so exports std::filesystem functions that crash with a null call if they are
# found before the real ones. By file name, because -lstdc++ would take a static library if that is all the
# linker finds, and a second copy of the library next to torch's crashes at the first formatted number.
target_link_libraries(seqfuse_torch INTERFACE -l:libstdc++.so.6 torch torch_cpu c10)
if(EXISTS ${SEQFUSE_TORCH_DIR}/lib/libtorch_cuda.so)
  set(SEQFUSE_TORCH_HAS_CUDA ON)
  target_link_libraries(seqfuse_torch INTERFACE torch_cuda c10_cuda)
endif()

# NCCL's header is next to torch; the code is in torch's CUDA library.
if(SEQFUSE_HAS_CUDA AND SEQFUSE_TORCH_HAS_CUDA)
  find_path(SEQFUSE_NCCL_DIR nccl.h HINTS ${SEQFUSE_TORCH_DIR}/../nvidia/nccl/include)
  if(NOT SEQFUSE_NCCL_DIR)
    message(STATUS "nccl.h not found beside torch: trains on one GPU only. For several: pip install nvidia-nccl-cu13")
  endif()
endif()

# A precompiled header with the torch headers that most files use, shared by all targets. Not <torch/torch.h>, whose
# other headers would cost each file seconds. Files still include the torch headers that they need.
# (Written only once: a newer time stamp would rebuild everything.)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp CONTENT "// Carries the shared precompiled header.\n")
add_library(seqfuse_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(seqfuse_torch_pch PUBLIC seqfuse_options seqfuse_fmt seqfuse_torch)
target_precompile_headers(seqfuse_torch_pch PRIVATE <torch/types.h> <torch/autograd.h> <torch/nn/module.h>)

# Adds the precompiled header to a target. Executables must then be compiled with -fPIC like the header;
# their default -fPIE would make it invalid.
function(seqfuse_use_torch_pch target)
  target_precompile_headers(${target} REUSE_FROM seqfuse_torch_pch)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
endfunction()

# seqfuse_torch_layer(name [libraries...]): like seqfuse_layer, with torch and the precompiled header.
function(seqfuse_torch_layer name)
  seqfuse_layer(${name} seqfuse_torch ${ARGN})
  target_precompile_headers(${name} REUSE_FROM seqfuse_torch_pch)
  seqfuse_compile_together(${name} 8)
endfunction()
