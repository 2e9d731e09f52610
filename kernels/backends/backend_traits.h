#pragma once

// What a backend can do, as one value, and what programs for it are compiled with. Pure functions;
// any thread.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ir/co_scheduler/chain_schedule.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/program.h"
#include "kernels/ir/recipe.h"
#include "proto/base/model/rescale.h"
#include "proto/base/training/batch_split.h"

namespace runnel {

// How fast a processor is taken to be, for what cannot be timed on it. Who knows nothing of a
// processor assumes these.
struct NominalRates {
  // Instructions can be timed: the backend computes here and now as it will in training. False for
  // what an emulator runs, whose time says nothing about the processor.
  bool is_timed = true;
  double int8_macs_per_second = 1e9;
  double float_macs_per_second = 1e9;
  double bytes_per_second = 1e9;          // of what instructions read and write
  double instruction_seconds = 10e-6;     // of any instruction
  SwitchCost switch_cost = {1e-3, 1e-9};  // from the host to it, or back
};

// What a processor takes for an instruction, for devices without a sensor
// (worker/stage/counts/work_energy.h).
struct ProcessorEnergy {
  double share = 1;  // of what the model counts
  // Of a multiply-add with all that belongs to it, as somebody measured it, in place of the model;
  // then other instructions take nothing. 0: nobody did.
  double mac_picojoules = 0;
};

// Where the memory is that a backend allocates.
enum class MemoryKind : uint8_t {
  kHost,    // any thread of the host reads and writes it
  kDevice,  // the host sees it while it is mapped
};

struct BackendTraits {
  absl::string_view name;  // "cpu"; outlives the backend
  // Within one class a floating-point program gives the same bytes: "cpu/avx512/rule1".
  std::string numerics_class;
  MemoryKind memory = MemoryKind::kHost;
  // Programs compiled with CompileOptions::recomputes run faster here.
  bool recomputes = false;
  // There are products that rescale their own sums (kInt8ConvForwardRescaled and the like).
  bool rescales_in_products = false;
  // Products make codes of their own sums (kInt8ProductToCodes), some in FP32
  // (kRealProductToCodes), and weights are packed when a program is prepared (Program::constants).
  bool codes_in_products = false;
  // The backend computes programs that were compiled with this CompileOptions::stash, and wants
  // them.
  DType stash = DType::kFloat32;
  // Products of the codes of grids (CompileOptions::integer_products).
  bool multiplies_codes = false;
  // Masks of ReLUs and pairs of codes (CompileOptions::masks_stash).
  bool masks_stash = false;
  // Copies from one floating type to another (LayerSpec::stash).
  bool narrows_stash = false;
  // Runs programs of halves (Program::values).
  bool computes_halves = false;
  // Weight-gradients can be those of shifted slices (BatchSplit).
  bool shifts_slices = false;
  // Slices of a batch (BatchSplit) run one after the other. Backends without this compute the
  // whole, with the same bytes.
  bool takes_slices = false;
  // What a program leaves in kStash or kScratch, another program finds there: row-major, all of it.
  // Not so on processors that choose a layout program by program, or store less than is said.
  bool keeps_values = false;
  // Convolutions with OpSpec::dilation, of floats.
  bool dilates = false;
  // Padding in front that is not that behind (OpSpec::padding_end).
  bool pads_by_side = false;
  // Means over windows that reach into padding, of FP32.
  bool pads_means = false;
  // A product of INT8 inference may be computed when its sums are requantised: its input has to
  // stay until then.
  bool delays_products = false;
  NominalRates rates;
};

// What the programs of a stage have to be, whichever backend runs them.
struct StagePrograms {
  int64_t max_batch = 1;     // members without a comment: as CompileOptions has them
  bool accumulates = false;  // a step has several micro-batches
  bool one_in_flight = false;
  bool defers_weight_gradients = false;
  // Weight-gradients are there behind a backward, and no backward takes a step, which is the default
  // where they need not be.
  bool keeps_gradients = false;
  RescaleRule rescale = {};
  BatchSplitRule batch_split = {};
  const Optimizer* optimizer = nullptr;
  bool averages_weights = false;
  int most_forward_bits = 0;
};

// How they are compiled for a backend. Unimplemented, one line that says what to take instead: it
// keeps no scales, or shifts no slices.
absl::StatusOr<CompileOptions> CompileOptionsFor(const BackendTraits& traits, const Recipe& recipe,
                                                 const StagePrograms& programs);
// Unimplemented, one line that says what to take instead: an instruction has a window that the
// backend does not compute (dilates and the like), or keeps a stash of a type that it does not
// (narrows_stash). For Backend::Prepare.
absl::Status CheckWindows(const BackendTraits& traits, const Program& program);
// Whether --batch-split auto measures slices on the backend.
bool MeasuresSlices(const BackendTraits& traits, const Recipe& recipe, const BatchSplitRule& rule);

}  // namespace runnel
