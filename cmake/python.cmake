# SEQFUSE_PYTHON: the interpreter whose site-packages hold torch and pyarrow. The active Python if it
# has torch (it is used as it is and never changed), else the project's own .venv (`make setup`).
if(NOT SEQFUSE_PYTHON)
  foreach(candidate "$ENV{VIRTUAL_ENV}/bin/python" python3 "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    execute_process(COMMAND ${candidate} -c "import importlib.util as u, sys
sys.exit(not (u.find_spec('torch') and u.find_spec('pyarrow')))"
                    RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
    if(missing EQUAL 0)
      execute_process(COMMAND ${candidate} -c "import sys; print(sys.executable)"
                      OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE)
      set(SEQFUSE_PYTHON "${python}" CACHE FILEPATH "Python whose torch and pyarrow are used" FORCE)
      break()
    endif()
  endforeach()
endif()
if(NOT SEQFUSE_PYTHON)
  message(FATAL_ERROR "No Python with torch and pyarrow found (tried the active one and .venv). "
                      "Run `make setup`, or set SEQFUSE_PYTHON.")
endif()
execute_process(COMMAND ${SEQFUSE_PYTHON} -c "import importlib.util as u
for name in ('torch', 'pyarrow'): print(u.find_spec(name).submodule_search_locations[0])"
                OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" python_packages "${python_packages}")
list(GET python_packages 0 SEQFUSE_TORCH_DIR)
list(GET python_packages 1 SEQFUSE_PYARROW_DIR)
message(STATUS "Python: ${SEQFUSE_PYTHON}")
