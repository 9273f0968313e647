# Installs vLLM for the empty target and this plugin into the active environment, beside the torch and numpy of tt-metal.
#
#     source docs/install-vllm-tt.sh                     the default release of compat.toml
#     source docs/install-vllm-tt.sh --version 0.31.0    another one
#     source docs/install-vllm-tt.sh --dry-run           say what would be run, and change nothing
#
# Activate the environment where tt-metal is installed first. May be sourced or run, from any folder, again and again.
# What is installed already stays: torch, numpy and opencv are never replaced. ttnn needs numpy 1 and the opencv that
# vLLM asks for needs numpy 2, so beside ttnn opencv is left out; only video input would use it.

_vllm_tt_install() {
    local script="${BASH_SOURCE[0]:-${(%):-%x}}"
    local root python argument dry_run=""
    root="$(cd "$(dirname "$script")/.." && pwd)" || return 1
    python="$(command -v python || command -v python3)" || {
        echo "install-vllm-tt: no python on PATH: activate the environment of tt-metal first" >&2
        return 1
    }
    for argument in "$@"; do
        [ "$argument" = "--dry-run" ] && dry_run=yes
    done
    if [ -z "$dry_run" ]; then
        if ! command -v uv >/dev/null && [ ! -x "$(dirname "$python")/uv" ]; then
            "$python" -m pip install --quiet "uv>=0.11,<1" || return 1
        fi
        local uv
        uv="$(command -v uv || echo "$(dirname "$python")/uv")"
        "$uv" pip install --quiet --python "$python" "$root"/packages/* "$root" || {
            echo "install-vllm-tt: the plugin could not be installed; the lines above say why" >&2
            return 1
        }
    fi
    # From the source tree, so that a dry run needs nothing installed.
    PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}" "$python" -m vllm_tt_plugin.install_vllm "$@"
}

_vllm_tt_install "$@"
_vllm_tt_status=$?
unset -f _vllm_tt_install
# Sourced, a failure must not end the shell: the status is all that is left behind.
(exit $_vllm_tt_status)
