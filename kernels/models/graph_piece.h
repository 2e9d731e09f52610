#pragma once

// The nodes of an INT8 graph that lead from some of its values to another one, as programs on a
// backend: one for each batch size.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/models/graph_program.h"

namespace runnel::inference {

// Aligned memory of the host that only grows.
class Room {
 public:
  absl::StatusOr<std::byte*> Of(int64_t bytes);
  std::byte* data() const { return memory_ == nullptr ? nullptr : memory_->address(); }

 private:
  std::unique_ptr<Memory> memory_;
};

// The bytes of a node's value: codes in NHWC, or FP32 logits; of node 0 of a graph that takes
// samples those, FP32 in NCHW.
int64_t ValueBytes(const Int8Graph& graph, size_t node, int64_t batch);

// One thread at a time.
class GraphPiece {
 public:
  // given, output: as CompileGraph. graph, backend: borrowed. Errors: those of CompileGraph and of
  // the backend.
  static absl::StatusOr<GraphPiece> Make(const Int8Graph& graph, Backend& backend,
                                         std::vector<size_t> given, size_t output);

  Backend& backend() const { return *backend_; }
  size_t output() const { return output_; }
  // values: those of `given`. Writes the output's to `to`, or its codes where it has logits too.
  // A run like the one before asks for no memory on the host. Errors: the backend's.
  absl::Status Run(int64_t batch, absl::FunctionRef<const std::byte*(size_t node)> values,
                   std::byte* to);

  // Executable::memory_bytes of the programs that are ready.
  int64_t memory_bytes() const;
  // Whether one of them computes a product as F(2x2, 3x3).
  bool has_winograd() const;

 private:
  // A program made ready, with what it computes in.
  struct Prepared {
    GraphProgram made;
    std::unique_ptr<Memory> scratch;
    std::unique_ptr<Executable> executable;
  };

  GraphPiece(const Int8Graph& graph, Backend& backend, std::vector<size_t> given, size_t output)
      : graph_(&graph), backend_(&backend), given_(std::move(given)), output_(output) {}
  absl::StatusOr<GraphProgram> Compile(int64_t batch) const;
  absl::StatusOr<Prepared*> PreparedFor(int64_t batch);
  absl::StatusOr<Prepared*> Prepare(int64_t batch);
  absl::StatusOr<const std::byte*> Give(const GraphProgram& made, int64_t batch,
                                        absl::FunctionRef<const std::byte*(size_t node)> values);

  const Int8Graph* graph_;
  Backend* backend_;
  GraphOptions options_;
  std::vector<size_t> given_;
  size_t output_;
  std::unique_ptr<Memory> parameters_;
  // The backend takes whole programs with weights that never change: Program::constants is the
  // address of parameters_, of which a device reads nothing on the host.
  bool is_whole_ = false;
  std::map<int64_t, std::unique_ptr<Prepared>> prepared_;  // by batch
  Room input_area_, output_area_;
};

}  // namespace runnel::inference
