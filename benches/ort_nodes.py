#!/usr/bin/env python3
"""How many nodes ONNX Runtime's extended optimisation leaves of each model of the corpus, as JSON: {name: [before, after]}.

Run by the bench `optimiser`, with the Python of the corpus. Nodes of subgraphs count, constants do not.
"""
import json
import sys
import tempfile
from pathlib import Path

import onnx
import onnxruntime


def nodes(graph) -> int:
    count = 0
    for node in graph.node:
        count += node.op_type != "Constant"
        for attribute in node.attribute:
            count += nodes(attribute.g) if attribute.HasField("g") else 0
            count += sum(nodes(g) for g in attribute.graphs)
    return count


def optimised(model: Path, scratch: Path) -> list[int]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(scratch / "optimised.onnx")
    options.log_severity_level = 4
    # Weights go to a file of their own: models beyond 2 GB could not be saved otherwise, and only the graph is looked at.
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    before = onnx.load(model, load_external_data=False)
    after = onnx.load(scratch / "optimised.onnx", load_external_data=False)
    return [nodes(before.graph), nodes(after.graph)]


def main() -> None:
    found = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        if (folder / "model.onnx").exists():
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    found[folder.name] = optimised(folder / "model.onnx", Path(scratch))
                except Exception as e:  # a model that ONNX Runtime cannot save is reported as such
                    print(f"{folder.name}: {e}", file=sys.stderr)
    json.dump(found, sys.stdout, indent=1)


main()
