# Compiler settings of our own code, kept on one interface target.
add_library(seqfuse_options INTERFACE)
target_include_directories(seqfuse_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(seqfuse_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow=local;-Wno-unknown-pragmas;-Wno-missing-field-initializers>)

# With CI=true in the environment, warnings are errors, except for the Python package, which other projects build in CI.
set(werror OFF)
if("$ENV{CI}" AND NOT SEQFUSE_PYTHON_PACKAGE)
  set(werror ON)
endif()
option(SEQFUSE_WERROR "Warnings are errors" ${werror})
if(SEQFUSE_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # These flow-sensitive warnings stay warnings: in GCC 12 and 13 they have false positives in std::string and
    # std::vector (GCC bugs 105329, 105651). A precompiled header that GCC does not take, as GCC 13 with other optimisation,
    # only costs time.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds;-Wno-error=restrict;-Wno-error=stringop-overflow;-Wno-error=maybe-uninitialized;-Wno-error=invalid-pch>")
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # ccache caches the precompiled header only if it may ignore time stamps.
  set(launcher ${CMAKE_COMMAND} -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      CCACHE_MAXSIZE=10G ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

# Vector code of the CPU operators, for SEQFUSE_CPU_ARCH; 512-bit registers if it has them.
# FMA contraction is allowed; re-association only in loops that ask for it (#pragma omp simd reduction).
add_library(seqfuse_simd INTERFACE)
target_compile_options(seqfuse_simd INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-O3;-march=${SEQFUSE_CPU_ARCH};-ffp-contract=fast;-fopenmp-simd;-fno-math-errno;-fno-trapping-math>)
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mprefer-vector-width=512 SEQFUSE_HAS_VECTOR_WIDTH)
if(SEQFUSE_HAS_VECTOR_WIDTH)
  target_compile_options(seqfuse_simd INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-mprefer-vector-width=512>)
endif()

# Most of the time of compiling a file that includes torch is torch's headers, precompiled or not: GCC instantiates the
# 23,000 functions of templates that their inline functions use again in every file. An empty file with the precompiled
# header takes 10 s of processor time and 0.8 GB. So several files are compiled as one; also without torch, where JSON,
# CLI11 and Arrow are the headers. tools/check_names.py keeps their names apart.
option(SEQFUSE_UNITY "Compile several files at once; off: a changed file alone is compiled again" ON)
function(seqfuse_compile_together target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SEQFUSE_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

# seqfuse_layer(name [libraries...]): the static library of a directory, from all sources in it and below.
function(seqfuse_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB_RECURSE libraries CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(library ${libraries})  # a folder with its own CMakeLists.txt is a separate library
    cmake_path(GET library PARENT_PATH folder)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC seqfuse_options ${ARGN})
  seqfuse_compile_together(${name} 6)
endfunction()
