# SPDX-License-Identifier: Apache-2.0
# Written by scripts/python_stubs.py.
import os
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union
from concurrent.futures import Executor

from . import errors as errors
from .commands import ReadScenario as ReadScenario, Rows as Rows, program as program
from .errors import InputError as InputError, InternalBug as InternalBug, PenstockError as PenstockError
from .foreign import from_hf as from_hf, from_megatron as from_megatron, from_torch as from_torch
from .results import Timeline as Timeline

__version__: str
Scenario = Union[str, "os.PathLike[str]", Mapping[str, Any], ReadScenario]

class Result:
    schema_version: int
    scenario: str
    overrides: Any
    engine: str
    model: Any
    parameters: Optional[int]
    seq_length: Optional[int]
    schedule: Any
    transfers: str
    software: Any
    stages: int
    width: Any
    replication: str
    tensor: int
    ulysses: int
    context: int
    chunks: int
    microbatches: int
    samples_per_update: float
    given_forward_s_per_sample: Any
    microbatch_size: int
    batches: int
    feasible: Optional[bool]
    missing: Any
    missing_saves: Any
    infeasible_because: Any
    makespan_s: float
    iteration_time_s: Optional[float]
    throughput_samples_per_s: float
    throughput_microbatches_per_s: float
    tokens_per_s: Optional[float]
    tokens_per_s_per_gpu: Optional[float]
    tokens_per_s_per_device: Optional[float]
    tflops_per_gpu: Optional[float]
    tflops_per_device: Optional[float]
    mfu: Optional[float]
    mfu_causal: Optional[float]
    hfu: Optional[float]
    epoch_s: Optional[float]
    expected_error: Any
    bubble_fraction: float
    stage_bubble_fraction: float
    bubble: Dict[str, float]
    communication: Any
    critical_path: Any
    ops: int
    engine_seconds: Any
    what_would_help: Any
    what_to_change: Any
    help_not_tried: Any
    devices: Any
    links: Any
    perturbations: Any
    runs: Any
    goodput: Any
    samples: Any
    notes: Any
    @property
    def timeline(self) -> Timeline: ...
    def to_dict(self) -> Dict[str, Any]: ...
    def scenario_text(self) -> str: ...
    def report(self) -> str: ...
    def _repr_html_(self) -> str: ...

def simulate(
    scenario: Scenario,
    *,
    engine: Literal['auto', 'exact', 'fluid', 'simgrid'] = ...,
    **keys: Any,
) -> Result: ...
def compare(
    *scenarios: Scenario,
    over: Any = ...,
    stack: Any = ...,
    engine: Literal['auto', 'exact', 'fluid', 'simgrid'] = ...,
    report: Any = ...,
    reproducible: bool = ...,
    output: Any = ...,
    **keys: Any,
) -> List[Dict[str, Any]]: ...
def schedule(
    name: str,
    *,
    versions: bool = ...,
    width: Any = ...,
    output: Any = ...,
    **keys: Any,
) -> Dict[str, Any]: ...
def plan(
    source: Scenario,
    *,
    executor: Optional[Executor] = ...,
    search: Literal['full', 'pipedream', '2bw', 'dapple', 'torchgpipe', 'uniform'] = ...,
    level: Any = ...,
    cluster: Any = ...,
    gpus: Any = ...,
    stack: Any = ...,
    seq_length: Any = ...,
    memory: Any = ...,
    batch: Any = ...,
    microbatch_size: Any = ...,
    profile_batch: Any = ...,
    stages: Any = ...,
    balance: Literal['time', 'size'] = ...,
    straight: bool = ...,
    no_transfers: bool = ...,
    objective: Literal['throughput', 'memory', 'price', 'time'] = ...,
    schedule: Any = ...,
    recompute: Union[Literal['none', 'selective', 'full'], Sequence[Literal['none', 'selective', 'full']]] = ...,
    uniform_recompute: bool = ...,
    headroom: Any = ...,
    sequence_parallel: bool = ...,
    distributed_optimizer: bool = ...,
    asynchronous: bool = ...,
    effort: Any = ...,
    time_limit: Any = ...,
    compare: bool = ...,
    statistics: bool = ...,
    price: Any = ...,
    tokens: Any = ...,
    write: Any = ...,
    force: bool = ...,
    top: Any = ...,
    report: Any = ...,
    output: Any = ...,
    **keys: Any,
) -> Dict[str, Any]: ...
def sweep(
    *scenarios: Scenario,
    executor: Optional[Executor] = ...,
    over: Any,
    zip: Any = ...,
    where: Any = ...,
    stack: Any = ...,
    engine: Literal['auto', 'exact', 'fluid', 'simgrid'] = ...,
    jobs: Any = ...,
    timeout: Any = ...,
    output: Any = ...,
    resume: bool = ...,
    force: bool = ...,
    report: Any = ...,
    shard: Any = ...,
    top: Any = ...,
    sort: Any = ...,
    columns: Any = ...,
    reproducible: bool = ...,
    **keys: Any,
) -> Rows: ...
def train(
    *scenarios: Scenario,
    updates: Any = ...,
    compare: bool = ...,
    seeds: Any = ...,
    rates: Any = ...,
    jobs: Any = ...,
    checkpoint: Any = ...,
    resume: bool = ...,
    force: bool = ...,
    compute: Literal['auto', 'real', 'stand-in'] = ...,
    report: Any = ...,
    reproducible: bool = ...,
    output: Any = ...,
    **keys: Any,
) -> List[Dict[str, Any]]: ...
def validate(
    *files: Any,
    tolerance: Any = ...,
    engine: Literal['auto', 'exact', 'fluid', 'simgrid'] = ...,
    as: Literal['runs', 'vtrain', 'sailor', 'simumax', 'op-times', 'kernels', 'predicted'] = ...,
    print: Any = ...,
    rows: bool = ...,
    profiles: Any = ...,
    model: Any = ...,
    markdown: bool = ...,
    report: Any = ...,
    trace: Any = ...,
    output: Any = ...,
    **keys: Any,
) -> Any: ...
def calibrate(
    source: Any = ...,
    *,
    backend: Literal['host', 'cuda'] = ...,
    output: Any = ...,
    microbatch_sizes: Any = ...,
    recompute: Any = ...,
    workers: Any = ...,
    repetitions: Any = ...,
    precision: Literal['fp32', 'bf16'] = ...,
    link: Literal['d2d', 'pinned', 'paced'] = ...,
    request: Any = ...,
    result: Any = ...,
    device: Any = ...,
    largest: Any = ...,
    from: Any = ...,
    stack: Any = ...,
    numbers: Any = ...,
    memory: bool = ...,
    folds: Any = ...,
    seed: Any = ...,
    **keys: Any,
) -> Dict[str, Any]: ...
