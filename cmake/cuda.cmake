# Builds CUDA kernels if nvcc is present, and sets SEQFUSE_HAS_CUDA for the rest of the build.
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
    find_package(CUDAToolkit REQUIRED)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: kernels for ${SEQFUSE_CUDA_ARCHITECTURES}")
    # Headers of the toolkit with which profilers see names of ranges.
    find_path(SEQFUSE_NVTX_DIR nvtx3/nvToolsExt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
    # CUTLASS headers, for SM 9.0 kernels: from CUTLASS_DIR, or from the wheel beside torch or in .venv.
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
