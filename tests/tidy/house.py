"""The rules of the house as data. To change a rule, change a row here.

Patterns are shell globs over paths from the repository root; `*` also matches `/`.
"""

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600

# What may lie at the top level; everything else is a finding.
TOP_LEVEL = (
    "CMakeLists.txt", "proto", "central", "worker", "predictor", "compress", "partition",
    "kernels", "deploy", "tests", "README.md", "ARCHITECTURE.md", "CMakePresets.json",
    ".clang-format", ".clang-tidy", ".ci", ".gitignore", ".gitattributes", "LICENSE",
    "CHANGELOG.md", "FIGURES.md", "DECISIONS.md")

# Never looked at: what builds leave behind, and data that others wrote.
SKIPPED_FOLDERS = (".git", "build", ".cache", "__pycache__", "shared")
DATA = ("tests/golden/*", "LICENSE")

C_LIKE = (".cc", ".h", ".c", ".inc", ".cl")
HEADERS = (".h",)
INCLUDED = (".h", ".inc")
LENGTH_LIMITED = C_LIKE + (".py", ".sh", ".proto")
TEXT = LENGTH_LIMITED + (".cmake", ".txt", ".md", ".yml", ".yaml", ".json", ".service", ".toml")
TEXT_NAMES = (".ci/*", ".clang-*", ".gitignore")

MAINS = ("*/main.cc", "*_main.cc")
TESTS = ("tests/*",)

# Who may include what of ours: the first row whose first pattern fits the including file counts.
ARROWS = (
    (TESTS, ("*",)),
    (MAINS, ("*",)),
    (("proto/base/*",), ("proto/base/*",)),
    # transport: link <- control <- {relay, grpc}
    (("proto/transport/link/*",), ("proto/transport/link/*", "proto/base/*")),
    (("proto/transport/control/*",),
     ("proto/transport/control/*", "proto/transport/link/*", "proto/base/*")),
    (("proto/transport/relay/*",),
     ("proto/transport/relay/*", "proto/transport/control/*", "proto/transport/link/*", "proto/crypto/*",
      "proto/base/*")),
    # grpc: what both planes share <- security <- {data, control}
    (("proto/transport/grpc/data/*",),
     ("proto/transport/grpc/data/*", "proto/transport/grpc/security/*", "proto/transport/grpc/grpc_*",
      "proto/transport/grpc/listen_address.h", "proto/transport/link/*", "proto/base/*")),
    (("proto/transport/grpc/control/*",),
     ("proto/transport/grpc/control/*", "proto/transport/grpc/security/*",
      "proto/transport/grpc/grpc_*", "proto/transport/grpc/insecure_network.h", "proto/transport/grpc/listen_address.h",
      "proto/transport/control/*", "proto/transport/relay/*", "proto/transport/link/*", "proto/crypto/*",
      "proto/base/*")),
    (("proto/transport/grpc/*",),
     ("proto/transport/grpc/security/*", "proto/transport/grpc/grpc_*",
      "proto/transport/grpc/listen_address.h", "proto/transport/link/*", "proto/crypto/*",
      "proto/base/*")),
    (("proto/json/*",), ("proto/json/*", "proto/base/*")),
    (("proto/process/*",), ("proto/process/*", "proto/base/*")),
    (("proto/crypto/*",), ("proto/crypto/*", "proto/process/*", "proto/base/*")),
    (("proto/*",), ("proto/*",)),
    # kernels: ir <- {models, backends}; no backend sees another but through the contract, the table and mixed, which runs several.
    (("kernels/backends/builtin_backends.cc",), ("kernels/*", "proto/base/*")),
    (("kernels/ir/recipes/*",), ("kernels/ir/recipes/*", "kernels/ir/recipe.h", "kernels/ir/program.h",
                                 "kernels/ir/arithmetic/integer_math.h", "proto/base/*")),
    (("kernels/ir/*",), ("kernels/ir/*", "proto/base/*")),
    (("kernels/backends/host/*",), ("kernels/backends/host/*", "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/measure/*",), ("kernels/backends/measure/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/cpu/*",), ("kernels/backends/cpu/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/ref/*",), ("kernels/backends/ref/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/small/primitives/*",), ("kernels/backends/small/primitives/*",)),
    (("kernels/backends/small/*",), ("kernels/backends/small/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/torch/*",), ("kernels/backends/torch/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/vendor_host/*",), ("kernels/backends/vendor_host/*", "proto/base/*")),
    (("kernels/backends/hexagon/*",), ("kernels/backends/hexagon/*", "kernels/backends/vendor_host/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/opencl/*",), ("kernels/backends/opencl/*", "kernels/backends/vendor_host/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    (("kernels/backends/mixed/*",), ("kernels/backends/mixed/*", "kernels/backends/host/*", "kernels/backends/measure/*",
                                 "kernels/backends/*.h", "kernels/ir/*", "proto/base/*")),
    # A graph's arithmetic is a Program: models see the contract of backends, and none of them.
    (("kernels/models/*",), ("kernels/models/*", "kernels/backends/backend.h", "kernels/backends/tells_ways.h",
                             "kernels/backends/host/host_memory.h",
                             "kernels/ir/*", "proto/base/*")),
    (("kernels/*",), ("kernels/*", "proto/base/*")),
    (("compress/*",), ("compress/*", "proto/base/*")),
    (("partition/import/*",), ("partition/import/*", "proto/json/*", "proto/base/*")),
    (("partition/*",), ("partition/*", "proto/base/*")),
    # predictor: {cost, profiles, fit, networks} <- run <- judge <- train
    (("predictor/cost/*",), ("predictor/cost/*", "partition/cost_model.h", "proto/base/*")),
    (("predictor/profiles/*",), ("predictor/profiles/*", "proto/json/*", "proto/base/*")),
    (("predictor/networks/*",), ("predictor/networks/*", "proto/json/*", "proto/base/*")),
    (("predictor/fit/*",), ("predictor/fit/*", "proto/base/*")),
    (("predictor/run/*",),
     ("predictor/run/*", "predictor/fit/*", "predictor/networks/*", "predictor/cost/*",
      "predictor/profiles/*", "partition/cost_model.h", "proto/base/*")),
    (("predictor/judge/*",),
     ("predictor/judge/*", "predictor/run/*", "predictor/fit/*", "predictor/networks/*",
      "predictor/cost/*", "predictor/profiles/*", "proto/base/*")),
    (("predictor/*",), ("predictor/*", "partition/cost_model.h", "proto/base/*")),
    # central: cli -> run -> {display, planning} -> records -> settings; data beside. Only
    # runnel-lab (cli/lab) sees reports and the judge of predictions.
    (("central/data/*",), ("central/data/*", "proto/base/*")),
    (("central/settings/*",),
     ("central/settings/*", "partition/*", "compress/*", "proto/json/*", "proto/base/*")),
    (("central/records/*",),
     ("central/records/*", "central/settings/*", "proto/*")),
    (("central/display/*",),
     ("central/display/*", "central/records/*", "central/settings/*", "proto/*")),
    (("central/planning/*",),
     ("central/planning/*", "central/records/*", "central/settings/*",
      "partition/*", "predictor/*", "compress/*", "proto/*")),
    (("central/reports/*",),
     ("central/reports/*", "central/planning/*", "central/records/*", "central/settings/*",
      "partition/*", "predictor/*", "compress/*", "proto/*")),
    (("central/run/machines/*",),
     ("central/run/machines/*", "central/planning/*", "central/records/*", "central/settings/*",
      "predictor/*", "proto/*")),
    (("central/run/*",),
     ("central/run/*", "central/display/*", "central/planning/*", "central/records/*",
      "central/settings/*", "central/data/*", "partition/*", "predictor/*",
      "compress/*", "proto/*")),
    (("central/cli/lab/*",), ("central/*", "partition/*", "predictor/*", "compress/*", "proto/*")),
    (("central/cli/*",),
     ("central/cli/*", "central/run/*", "central/display/*", "central/planning/*",
      "central/records/*", "central/settings/*", "central/data/*", "partition/*", "predictor/run/*",
      "compress/*", "proto/*")),
    (("central/*",), ("central/*", "partition/*", "predictor/*", "compress/*", "proto/*")),
    (("worker/measure/*",),
     ("worker/measure/*", "worker/stage/stage_compute.h", "worker/stage/stage_executor.h", "worker/stage/stage_programs.h", "worker/stage/counts/work_energy.h",
      "kernels/*", "compress/*", "proto/*")),
    (("worker/stage/*",), ("worker/stage/*", "kernels/*", "compress/*", "proto/*")),
    (("worker/*",), ("worker/*", "kernels/*", "compress/*", "proto/*")),
)

# What another room may include of a room: its face. Everything else is the room's own. Mains and
# tests may look inside; proto/base is public as a whole.
PUBLIC_HEADERS = {
    "compress": ("codec.h", "bit_schedule.h", "grid.h", "link_bits.h", "typical_errors.h"),
    "kernels": ("backends/backend.h", "backends/mixed/mixed_backend.h", "ir/compiler.h", "ir/optimizers/momentum_lead.h", "ir/range_tally.h",
                "ir/recipe.h", "ir/work_tally.h",
                "models/graph/int8_graph.h", "models/graph_runner.h", "models/node_profile.h",
                "models/quantize/quantizer.h"),
    "partition": ("cost_model.h", "noise_places.h", "noise_ratios.h", "pipeline_model.h", "plan_builder.h", "policy.h", "scenario.h",
                  "schedule.h", "export/npz_file.h", "export/onnx_model.h", "export/quantized_onnx.h", "import/model_json.h",
                  "import/onnx_model.h", "zoo/rewrites/rewrites.h", "zoo/zoo.h"),
    "predictor": ("cost/measured_cost.h", "judge/cross_validate.h",
                  "profiles/profile_file.h", "profiles/profile_folder.h", "profiles/sub_models.h",
                  "run/predictor_row.h", "run/run_predictor.h"),
    "proto/transport": ("control/control.h", "control/control_channel.h",
                        "control/control_convert.h", "control/members.h", "control/model_convert.h",
                        "control/probe_train.h", "link/address.h", "link/event_loop.h",
                        "link/frame.h", "link/link_shell.h", "link/link_target.h", "link/port_probe.h", "link/transport.h",
                        "relay/relay_transport.h"),
    # What the mains share; others only write files with it.
    "proto/process": ("atomic_file.h", "atomic_stream.h", "command_line_error.h", "file_lock.h", "host_memory.h", "version.h"),
    "proto/crypto": ("authority.h", "certificate.h", "https.h", "identity.h", "join_client.h", "join_door.h",
                     "join_token.h", "sealed_file.h", "sha256.h"),
    "central": (),
    "worker": (),
}
HOUSE_FOLDERS = ("proto", "central", "worker", "predictor", "compress", "partition", "kernels",
                 "deploy", "tests")

# Files that read or write a file format made of protobuf messages.
FILE_FORMATS = (
    "central/records/*",
    "central/run/commands/integer_nodes*",
    "predictor/profiles/*",
    "worker/inference/*",
    "worker/measure/measurement_store*",
)
# Shells that speak a gRPC control plane.
GRPC_SHELLS = ("proto/transport/grpc*", "worker/*grpc*")

# Folders side by side that may include each other all the same.
FOLDER_CIRCLES = (
    {"kernels/models/graph", "kernels/models/product"},
)

# Included files of others, and the only files that may include them; why is printed.
THIRD_PARTY = (
    (("*.pb.h", "google/protobuf/*"),
     ("proto/transport/*",) + FILE_FORMATS + GRPC_SHELLS + MAINS + TESTS,
     "generated messages stay in proto/transport, file formats and mains",
     "use the vocabulary of proto/base, or add the file to FILE_FORMATS in tests/tidy/house.py"),
    (("grpc/*", "grpcpp/*", "grpc++/*", "*.grpc.pb.h"), GRPC_SHELLS + MAINS + TESTS,
     "gRPC stays in proto/transport/grpc*, shells named *grpc* and mains",
     "speak to proto/transport/link/transport.h instead"),
    (("openssl/*",), ("proto/crypto/*",) + TESTS, "OpenSSL stays in proto/crypto",
     "use sha256.h, certificate.h or identity.h of proto/crypto"),
    (("torch/*", "ATen/*", "c10/*"), ("kernels/backends/torch/*.cc", "predictor/*_torch.cc") + TESTS,
     "LibTorch stays in kernels/backends/torch/*.cc, predictor/*_torch.cc and tests",
     "hide it behind a header without LibTorch types"),
    (("CLI/*",), MAINS + ("central/cli/*", "proto/process/command_line_error.*", "proto/process/help_formatter.*"),
     "CLI11 stays in mains and central/cli (it costs 6 s a file)",
     "parse flags in the main and pass plain values"),
    (("spdlog/*", "fmt/*"),
     ("central/*", "worker/*", "predictor/*", "proto/process/*") + MAINS + TESTS,
     "log is an interface below the programs",
     "use proto/base/log.h"),
    (("absl/synchronization/mutex.h",), ("tests/process/hand_overs.cc",), "absl::Mutex hides from the thread sanitizer",
     "use std::mutex"),
    (("glog/*", "absl/log/*"), (), "one logging interface only", "use proto/base/log.h"),
)

# These folders return absl::Status and never log.
SILENT = ("kernels/*", "compress/*", "partition/*")
LOGGING = ("proto/base/log.h", "iostream", "spdlog/*")

# Headers that another compiler than the host's reads; headers.py leaves them out.
FOREIGN_HEADERS = ("kernels/backends/hexagon/dsp/*",)

# Spelt apart, so that this file does not find itself.
LEFT_BEHIND = ("TO" "DO", "FIX" "ME", "X" "XX", "HA" "CK")
