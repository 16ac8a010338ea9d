# SPDX-License-Identifier: Apache-2.0
"""Objects of other libraries as (parts of) scenarios. Nothing of those libraries is imported."""

import json
import os
import tempfile
from typing import Any, Dict, List, Mapping, Union

from . import _core
from .commands import ask


def from_hf(config: Any) -> Dict[str, Any]:
    """A model from a configuration of Hugging Face (`transformers.PretrainedConfig`, or the dict of
    a config.json).

    >>> model = from_hf({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...                  "n_positions": 1024, "vocab_size": 50257})
    >>> model["num_layers"], model["hidden_size"]
    (12, 768)
    """
    given = config if isinstance(config, Mapping) else config.to_dict()
    return _imported("config.json", json.dumps(dict(given), default=str, ensure_ascii=False))


def from_megatron(args: Any, *, cluster: str = "dgx-h100") -> Dict[str, Any]:
    """A scenario from Megatron-LM's arguments: a text or list of words as typed, or what its
    `parse_args` returns.

    >>> scenario = from_megatron("--num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
    ...                          "--seq-length 2048 --pipeline-model-parallel-size 4 "
    ...                          "--micro-batch-size 2 --global-batch-size 64 --bf16 "
    ...                          "--vocab-size 50257")
    >>> scenario["pipeline"]["stages"], scenario["model"]["num_layers"]
    (4, 24)
    """
    text = args if isinstance(args, str) else " ".join(_words(args))
    return _imported("arguments.sh", f"pretrain_gpt.py {text}", "megatron-args", cluster=cluster)


def from_torch(schedule: Any, file: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """A scenario with unit times from a schedule of `torch.distributed.pipelining` (or its
    `pipeline_order`: actions or their texts of each rank, None where it waits). Its table goes to
    `file`, a .csv that the scenario names.

    >>> import tempfile, penstock
    >>> order = {0: ["0F0", "0F1", None, None, "0B0", "0B1"], 1: [None, "1F0", "1B0", "1F1", "1B1", None]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scenario = from_torch(order, folder + "/order.csv")
    ...     penstock.simulate(scenario, engine="exact").makespan_s
    9.0
    """
    order = getattr(schedule, "pipeline_order", schedule)
    path = os.path.abspath(os.fspath(file))
    with open(path, "w", encoding="utf-8") as table:
        for rank in sorted(order):
            table.write(",".join("" if action is None else str(action) for action in order[rank]) + "\n")
    return _core.parse_yaml(ask("import", [path], {}), path)


def _words(args: Union[List[str], Any]) -> List[str]:
    if isinstance(args, (list, tuple)):
        return [_quoted(word) for word in args]
    words = []
    for key, value in vars(args).items():
        if value is None or value is False:
            continue
        words.append(f"--{key.replace('_', '-')}")
        if value is not True:
            words += map(_quoted, map(str, value if isinstance(value, (list, tuple)) else [value]))
    return words


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _imported(name: str, text: str, *form: str, **options: Any) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return _core.parse_yaml(ask("import", [*form, path], options), name)
