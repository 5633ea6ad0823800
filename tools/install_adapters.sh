#!/bin/sh
# Install what the adapters are tested with into an environment of its own, as far as it can be had.
#
#   tools/install_adapters.sh PYTHON ENVIRONMENT SECONDS TORCH_INDEX SKIPPED
#
# What takes longer than SECONDS is left out, and named in the file SKIPPED. PyTorch's CPU build comes
# alone, and is named when its needs follow: pip would else bring another version, and the gigabytes
# of CUDA.
set -eu
python=$1 environment=$2 seconds=$3 torch_index=$4 skipped=$5

install() {
  timeout "$seconds" "$environment/bin/python" -m pip --disable-pip-version-check --quiet \
    --retries 1 --timeout 15 install --no-compile --only-binary :all: "$@"
}
skip() { # skip NAME PACKAGE
  "$environment/bin/python" -m pip --quiet uninstall --yes "$2"
  echo "make: SKIPPED: no $1 to be had within $seconds s; rm $skipped to try again" >>"$skipped.new"
}
torch_version='from importlib.metadata import version; print("torch==" + version("torch"))'
install_torch() {
  install --no-deps --index-url "$torch_index" torch &&
    install "$("$environment/bin/python" -c "$torch_version")" entmax
}

"$python" -m venv "$environment"
: >"$skipped.new"
set -x
install hypothesis matplotlib mpmath pytest 'pytest-xdist>=3.8' scipy || skip pytest pytest
install scikit-learn || skip scikit-learn scikit-learn
install mapie || skip MAPIE mapie
install jax || skip JAX jax
install_torch || skip PyTorch torch
install onnx onnxscript onnxruntime || skip ONNX onnxruntime
install transformers accelerate || skip transformers transformers
install mypy 'pyright[nodejs]' || skip pyright pyright
mv "$skipped.new" "$skipped"
