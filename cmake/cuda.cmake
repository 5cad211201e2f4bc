# CUDA kernels are built where nvcc is. SEQFUSE_HAS_CUDA tells the rest of the build.
set(SEQFUSE_HAS_CUDA OFF)
if(NOT SEQFUSE_CUDA STREQUAL "off")
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${SEQFUSE_CUDA_ARCHITECTURES})
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(SEQFUSE_HAS_CUDA ON)
    set(CMAKE_CUDA_STANDARD 20)
    enable_language(CUDA)
    # torch's CMake files ignore CMAKE_CUDA_ARCHITECTURES and read this instead.
    set(TORCH_CUDA_ARCH_LIST "8.0;9.0a")
    find_package(CUDAToolkit REQUIRED)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: kernels for ${SEQFUSE_CUDA_ARCHITECTURES}")
    # CUTLASS's headers, for kernels of SM 9.0: CUTLASS_DIR, or the wheel beside torch or in .venv.
    file(GLOB cutlass_wheel ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/cutlass_library/source)
    find_path(SEQFUSE_CUTLASS_DIR cutlass/gemm/collective/collective_builder.hpp
              PATHS ${CUTLASS_DIR} $ENV{CUTLASS_DIR} ${SEQFUSE_TORCH_DIR}/../cutlass_library/source ${cutlass_wheel}
              PATH_SUFFIXES include NO_DEFAULT_PATH)
    if(NOT SEQFUSE_CUTLASS_DIR)
      message(STATUS "No CUTLASS headers: products with SiLU run the kernel of SM 8.0 on SM 9.0 too. For its own: "
                     "pip install --no-deps nvidia-cutlass==4.2.0.0 (or `make setup`), or -DCUTLASS_DIR=...")
    endif()
  elseif(SEQFUSE_CUDA STREQUAL "on")
    message(FATAL_ERROR "SEQFUSE_CUDA=on, but there is no nvcc: install the CUDA toolkit or put it on PATH")
  else()
    message(STATUS "No nvcc found: this build is CPU-only")
  endif()
endif()
