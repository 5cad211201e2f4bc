# SEQFUSE_PYTHON: the interpreter whose site-packages have torch and, unless only operators are built, pyarrow.
# It is the Python that pip builds for, or the active one if it has torch (used as it is and never changed),
# else the project's .venv (`make setup`).
#
# pip builds in isolation: environment variables hide the packages of the Python that it builds for. With -E
# (SEQFUSE_PYTHON_FLAGS) Python ignores them and finds the torch that the package will run with.
set(python_needs torch)
if(NOT SEQFUSE_PYTHON_PACKAGE)
  list(APPEND python_needs pyarrow)
endif()
if(NOT SEQFUSE_PYTHON)
  foreach(candidate IN ITEMS "${Python_EXECUTABLE}" "$ENV{VIRTUAL_ENV}/bin/python" python3 "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    foreach(flags IN ITEMS "" -E)
      if(NOT SEQFUSE_PYTHON AND candidate)
        execute_process(COMMAND ${candidate} ${flags} -c "import importlib.util as u, sys
print(sys.executable)
sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))" ${python_needs}
                        OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE
                        RESULT_VARIABLE missing ERROR_QUIET)
        if(missing EQUAL 0)
          set(SEQFUSE_PYTHON "${python}" CACHE FILEPATH "Python whose torch and pyarrow are used" FORCE)
          set(SEQFUSE_PYTHON_FLAGS "${flags}" CACHE INTERNAL "")
        endif()
      endif()
    endforeach()
  endforeach()
endif()
if(NOT SEQFUSE_PYTHON)
  list(JOIN python_needs " and " python_needs)
  message(FATAL_ERROR "No Python with ${python_needs} found (tried the active one and .venv). Run `make setup`, or set "
                      "SEQFUSE_PYTHON. With pip: install torch, then pip install --no-build-isolation.")
endif()
execute_process(COMMAND ${SEQFUSE_PYTHON} ${SEQFUSE_PYTHON_FLAGS} -c "import importlib.util as u, sys
for name in sys.argv[1:]: print(u.find_spec(name).submodule_search_locations[0])" ${python_needs}
                OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" python_packages "${python_packages}")
list(GET python_packages 0 SEQFUSE_TORCH_DIR)
if(NOT SEQFUSE_PYTHON_PACKAGE)
  list(GET python_packages 1 SEQFUSE_PYARROW_DIR)
endif()
message(STATUS "Python: ${SEQFUSE_PYTHON}")
