# SPDX-License-Identifier: Apache-2.0
"""Every shipped scenario fits scenario.schema.json; malformed ones that a schema can tell do not."""
import json
import os
import pathlib
import re
import sys

try:
    import jsonschema
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-jsonschema, python3-yaml)")
    sys.exit(77)

source = pathlib.Path(os.environ["PENSTOCK_SOURCE"])

# Malformed only in what a schema cannot see: other files, sums, and what a key means.
BEYOND_A_SCHEMA = """
    abstract-and-real-cluster allocator-slack-all asp asp-split backward-half backward-twice
    bandwidth-nearly-zero base-cycle base-file-is-list base-to-itself bucket-size chunks cluster-memory-below-reserved
    cluster-memory-zero control-character-in-name control-characters-escaped costs-list-length data-parallel
    device-reserves-too-much double-buffer-too-few duplicate-by-alias
    duplicate-key-in-model-file duplicate-keys empty-model fabric-keys fabric-many-levels
    fabric-oversubscription fabric-oversubscription-zero fabric-switch-link fabric-torus-shape
    fabric-torus-size fabric-torus-without-shape gigantic-model global-step-without-flush
    groups-and-nodes groups-keys groups-too-few groups-without-inter heads-do-not-divide
    huge-quantities hugging-face-activation hugging-face-experts hugging-face-gelu-llama
    hugging-face-head-dim hugging-face-t5 incomplete-shape megatron-dtypes megatron-experts
    megatron-groups megatron-normalization megatron-parallelism megatron-swiglu-without-rope
    memory-zero merge-key mesh-entries mesh-gap mesh-missing mesh-unused million-devices
    missing-model-file model-file-is-directory model-file-is-empty model-file-is-list
    model-is-directory model-typo network-and-link network-and-nodes
    network-more-devices-than-edges network-not-joined network-too-few-devices
    network-without-devices nics-do-not-divide no-backward no-forward no-peak-for-type
    nodes-without-devices nodes-without-inter options-of-pipedream overflowing-link
    overflowing-reduction overflowing-run overflowing-versions own-block own-block-file
    own-block-interval own-block-shape own-csv post-validation-without-flush pcie-host-of-one-socket pcie-missing perturbation-failures
    perturbation-free-transfers perturbation-idle-keys perturbation-jitter-no-spread
    perturbation-jitter-uniform perturbation-link-names perturbation-unlimited-link
    pipedream-with-microbatches placement-count placement-twice profile-and-costs
    profile-has-no-cluster profile-is-scenario profile-load profile-microbatch-size
    profile-recompute profile-without-rows recompute-length recompute-torchgpipe
    schedule-near-1f1b schedule-unlike-any
    offload selective-of-costs sequence-parallel-alone servers-more-than-replicas shape-and-costs
    shape-on-abstract-cluster shape-without-device split-does-not-divide split-length
    split-of-costs split-of-measured-model split-overflow split-sum split-sum-and-length
    stages-do-not-divide stages-exceed-layers tensor-does-not-divide
    tensor-does-not-divide-key-value-heads tensor-of-abstract-model tensor-of-measured-model
    tensor-too-many-devices too-deep-and-lists too-few-abstract-devices too-few-devices
    too-many-ops too-many-replicas too-many-stages uneven-dapple-pb unknown-cluster unknown-device
    unknown-model unknown-schedule wrong-booleans wrong-values-in-model-file zero-bandwidth
""".split()


class Loader(yaml.SafeLoader):
    """YAML 1.2's idea of plain words, as our reader has it: no dates, `yes` is a word."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def errors_of(validator, path):
    """None: not even YAML."""
    try:
        documents = list(yaml.load_all(path.read_text(), Loader))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return None
    if len(documents) != 1:
        return None
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in validator.iter_errors(documents[0])
    ]


def main():
    schema = json.loads((source / "scenarios/scenario.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    wrong = []
    shipped = sorted((source / "scenarios").glob("*.yaml"))
    for path in shipped:
        wrong += [f"{path.name} should be valid: {e}" for e in errors_of(validator, path)]
    folders = {"model": "models", "cluster": "models/clusters", "device": "models/devices", "stack": "models/stacks"}
    for kind, folder in folders.items():
        part = jsonschema.Draft7Validator(
            {"$ref": f"#/definitions/{kind}", "definitions": schema["definitions"]}
        )
        for path in sorted((source / folder).glob("*.yaml")):
            wrong += [f"{path.name} should be valid: {e}" for e in errors_of(part, path)]
    for path in (source / "models/devices").glob("*.yaml"):
        text = path.read_text()
        if re.search(r"(?i)assumed[^.]*curve|efficiency: assumed", text) and "efficiency_source: assumed" not in text:
            wrong.append(f"{path.name} says in a comment only that its curve is assumed")
    refused = 0
    for path in sorted((source / "tests/scenarios/malformed").glob("*.yaml")):
        if path.stem == "billion-laughs":  # validating it takes as long as it sounds
            continue
        errors = errors_of(validator, path)
        refused += bool(errors)
        if errors == [] and path.stem not in BEYOND_A_SCHEMA:
            wrong.append(f"{path.name} should be refused")
        if errors and path.stem in BEYOND_A_SCHEMA:
            wrong.append(f"{path.name} is refused, take it off the list: {errors[0]}")
    print(f"{len(shipped)} shipped scenarios valid, {refused} malformed ones refused by the schema")
    print("\n".join(wrong))
    return 1 if wrong or not shipped else 0


sys.exit(main())
