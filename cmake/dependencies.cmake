# Libraries other than torch. Each error names the package to install.
find_package(Threads REQUIRED)

# fmt: the headers from torch's include folder, through a link to that subfolder, so that torch's headers are not on
# the include path. src/base/fmt.cpp compiles it.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fmt_include)
file(CREATE_LINK ${SEQFUSE_TORCH_DIR}/include/fmt ${CMAKE_BINARY_DIR}/fmt_include/fmt SYMBOLIC)
add_library(seqfuse_fmt INTERFACE)
target_include_directories(seqfuse_fmt SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/fmt_include)

if(SEQFUSE_PYTHON_PACKAGE)  # language models, if there is JSON
  set(SEQFUSE_HAS_JSON OFF)
  find_path(SEQFUSE_nlohmann_json_hpp_DIR nlohmann/json.hpp)
  if(SEQFUSE_nlohmann_json_hpp_DIR)
    set(SEQFUSE_HAS_JSON ON)
    add_library(seqfuse_nlohmann-json3-dev INTERFACE)
    target_include_directories(seqfuse_nlohmann-json3-dev SYSTEM INTERFACE ${SEQFUSE_nlohmann_json_hpp_DIR})
  else()
    message(WARNING "nlohmann/json.hpp not found: seqfuse.GPTNeoX is left out. For it: apt-get install "
                    "nlohmann-json3-dev, or pass -DSEQFUSE_nlohmann_json_hpp_DIR=…")
  endif()
  return()
endif()

# Arrow with Parquet, from the pyarrow wheel, whose libraries have the version in their names.
file(GLOB arrow_library ${SEQFUSE_PYARROW_DIR}/libarrow.so.*00)
file(GLOB parquet_library ${SEQFUSE_PYARROW_DIR}/libparquet.so.*00)
if(NOT arrow_library OR NOT parquet_library)
  message(FATAL_ERROR "No libarrow/libparquet in ${SEQFUSE_PYARROW_DIR}: pip install pyarrow==25.0.1")
endif()
add_library(seqfuse_arrow INTERFACE)
target_include_directories(seqfuse_arrow SYSTEM INTERFACE ${SEQFUSE_PYARROW_DIR}/include)
target_link_libraries(seqfuse_arrow INTERFACE ${parquet_library} ${arrow_library})

function(seqfuse_find_header header package)
  string(MAKE_C_IDENTIFIER "SEQFUSE_${header}_DIR" variable)
  find_path(${variable} ${header})
  if(NOT ${variable})
    message(FATAL_ERROR "${header} not found: apt-get install ${package} (or `make setup`)")
  endif()
  add_library(seqfuse_${package} INTERFACE)
  target_include_directories(seqfuse_${package} SYSTEM INTERFACE ${${variable}})
endfunction()
seqfuse_find_header(CLI/CLI.hpp libcli11-dev)
seqfuse_find_header(nlohmann/json.hpp nlohmann-json3-dev)
seqfuse_find_header(xxhash.h libxxhash-dev)
# Gloo: only headers, for c10d's process group. The code is in libtorch; do not link Gloo's library.
find_path(SEQFUSE_GLOO_DIR gloo/context.h)
set(SEQFUSE_HAS_GLOO OFF)
if(SEQFUSE_GLOO_DIR)
  set(SEQFUSE_HAS_GLOO ON)
else()
  message(STATUS "gloo/context.h not found: trains on one process only. For several: apt-get install libgloo-dev "
                 "(or `make setup`)")
endif()
seqfuse_find_header(archive.h libarchive-dev)
find_library(SEQFUSE_ARCHIVE_LIBRARY archive REQUIRED)
target_link_libraries(seqfuse_libarchive-dev INTERFACE ${SEQFUSE_ARCHIVE_LIBRARY})
# For the tokenizer's patterns and normal forms. Everything else builds without them.
find_path(SEQFUSE_PCRE2_DIR pcre2.h)
find_library(SEQFUSE_PCRE2_LIBRARY pcre2-8)
find_path(SEQFUSE_UTF8PROC_DIR utf8proc.h)
find_library(SEQFUSE_UTF8PROC_LIBRARY utf8proc)
if(SEQFUSE_PCRE2_DIR AND SEQFUSE_PCRE2_LIBRARY AND SEQFUSE_UTF8PROC_DIR AND SEQFUSE_UTF8PROC_LIBRARY)
  set(SEQFUSE_HAS_TOKENIZER ON)
  file(STRINGS ${SEQFUSE_PCRE2_DIR}/pcre2.h pcre2_minor REGEX "define PCRE2_MINOR")
  string(REGEX MATCH "[0-9]+$" pcre2_minor "${pcre2_minor}")
  if(pcre2_minor LESS 40)  # the first with Unicode 14 and \p{sc:...}
    message(FATAL_ERROR "PCRE2 10.${pcre2_minor} in ${SEQFUSE_PCRE2_DIR}: the tokenizer needs 10.40 or newer")
  endif()
  add_library(seqfuse_unicode INTERFACE)
  target_include_directories(seqfuse_unicode SYSTEM INTERFACE ${SEQFUSE_PCRE2_DIR} ${SEQFUSE_UTF8PROC_DIR})
  target_link_libraries(seqfuse_unicode INTERFACE ${SEQFUSE_PCRE2_LIBRARY} ${SEQFUSE_UTF8PROC_LIBRARY})
else()
  set(SEQFUSE_HAS_TOKENIZER OFF)
  message(STATUS "PCRE2 or utf8proc not found: no tokenizer. For it: apt-get install libpcre2-dev libutf8proc-dev "
                 "(or `make setup`)")
endif()
