"""A package tree that looks like vLLM where it is read: small files with the switches that a test is about."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from proctor.engines.surroundings import Gpu, Package, Site

_FILES = {
    "envs.py": """
        environment_variables = {
            "VLLM_BATCH_INVARIANT": lambda: bool(int(os.getenv("VLLM_BATCH_INVARIANT", "0"))),
            "VLLM_CPU_ATTN_SPLIT_KV": lambda: bool(int(os.getenv("VLLM_CPU_ATTN_SPLIT_KV", "1"))),
            "VLLM_USE_BREAKABLE_CUDAGRAPH": lambda: bool(int(os.getenv("VLLM_USE_BREAKABLE_CUDAGRAPH", "0"))),
            "VLLM_USE_V2_MODEL_RUNNER": lambda: None,
        }
    """,
    "engine/arg_utils.py": """
        class EngineArgs:
            async_scheduling: bool | None = None
            attention_backend: str | None = None
            disable_cascade_attn: bool | None = None
            enable_chunked_prefill: bool | None = None
            enable_prefix_caching: bool | None = None
            enable_trace_replay: bool = False
            enforce_eager: bool = False
            kv_cache_dtype: str = "auto"
            max_num_batched_tokens: int | None = None

            def create(self):
                return ModelConfig(disable_cascade_attn=self.disable_cascade_attn, eager=self.enforce_eager)
    """,
    "config/model.py": '''
        class ModelConfig:
            max_logprobs: int = Field(default=33, ge=-1)
            disable_cascade_attn: bool = False
            """Disable cascade attention."""
    ''',
    "config/cache.py": """
        CacheDType = Literal["auto", "fp8", "int4"]
    """,
    "config/compilation.py": """
        class CompilationConfig:
            compile_mm_encoder: bool = False
            cudagraph_mm_encoder: bool = False
    """,
    "config/vllm.py": """
        class VllmConfig:
            def post(self):
                if self.model_config is not None and self.model_config.enforce_eager:
                    self.compilation_config.mode = CompilationMode.NONE
                if envs.VLLM_BATCH_INVARIANT and self.tuned():
                    os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "1"
                enabled = is_breakable_cudagraph_enabled()
                if enabled:
                    self.compilation_config.mode = CompilationMode.NONE
    """,
    "compilation/breakable_cudagraph.py": """
        def is_breakable_cudagraph_enabled() -> bool:
            return bool(envs.VLLM_USE_BREAKABLE_CUDAGRAPH)
    """,
    "compilation/decorators.py": """
        def should_torch_compile_mm_encoder(vllm_config):
            return vllm_config.compilation_config.compile_mm_encoder

        def wrap(self, enable_compile):
            self.do_not_compile = self.mode in [CompilationMode.NONE] or not enable_compile
    """,
    "platforms/cpu.py": """
        class CpuPlatform:
            def get_attn_backend_cls(cls, selected_backend):
                if cls.mla:
                    return AttentionBackendEnum.CPU_MLA.get_path()
                return AttentionBackendEnum.CPU_ATTN.get_path()

            def check_and_update_config(cls, vllm_config):
                scheduler_config.async_scheduling = False
                if vllm_config.mla:
                    cache_config.enable_prefix_caching = False
    """,
    "v1/attention/backends/registry.py": """
        class AttentionBackendEnum(Enum):
            FLASH_ATTN = "a"
            FLASHINFER = "b"
            CPU_ATTN = "c"
    """,
    "v1/worker.py": """
        def run(self):
            split = envs.VLLM_CPU_ATTN_SPLIT_KV
            cascade = not self.model_config.disable_cascade_attn
            a = self.enable_chunked_prefill, self.cache_config.enable_prefix_caching, self.enable_trace_replay
            b = self.max_num_batched_tokens, self.attention_config.backend, self.async_scheduling
            runner = envs.VLLM_USE_V2_MODEL_RUNNER
            dtype = self.cache_config.cache_dtype
    """,
}


def write_vllm(home: Path, **changes: str) -> Path:
    """The tree in `home`; a keyword replaces a file, with ``__`` for ``/`` and without its ending."""
    files = {**_FILES, **{f"{name.replace('__', '/')}.py": text for name, text in changes.items()}}
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return home


def vllm_site(home: Path, *gpus: Gpu, distribution: str = "vllm", triton: bool = True) -> Site:
    packages = {"vllm": Package(str(home), distribution, "9.9.9")}
    if triton:
        packages["triton"] = Package("/nowhere/triton", "triton", "3")
    return Site(python="3.11", packages=packages, cpus=2, gpus=gpus)
