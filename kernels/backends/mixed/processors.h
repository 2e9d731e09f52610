#pragma once

// What is known of processors beforehand: whether instructions can be timed on them, and nominal
// rates for what cannot. Pure functions; any thread.

#include "absl/strings/string_view.h"
#include "kernels/ir/co_scheduler/chain_schedule.h"
#include "kernels/ir/program.h"

namespace runnel {

// Raised when a rate or rule below changes: counted costs decide where floating-point instructions
// run, and so their bytes.
inline constexpr int kCountedRule = 4;

// Nominal rates of a processor.
struct ProcessorRates {
  absl::string_view backend;
  // Instructions can be timed: it computes here and now as it will in training. False for what an
  // emulator runs, whose time says nothing about the processor.
  bool is_timed = true;
  double int8_macs_per_second = 0;
  double float_macs_per_second = 0;
  double bytes_per_second = 0;     // of what instructions read and write
  double instruction_seconds = 0;  // of any instruction
  SwitchCost switch_cost;          // from the host to it, or back
  // What a program of it leaves in kStash or kScratch, another one finds there: row-major, all of
  // it. Not so on processors that choose a layout program by program, or store less than is said.
  bool keeps_values = false;
  // Slices of a batch (BatchSplit) run one after the other; the others compute the whole, with the
  // same bytes.
  bool takes_slices = false;
  // A product of INT8 inference may be computed when its sums are requantised: its input has to
  // stay until then.
  bool delays_products = false;
};

// Of a backend by Backend::name(); of names that are not known cautious ones.
const ProcessorRates& RatesOf(absl::string_view backend);

// Multiplications and operand bytes of an instruction.
struct CountedWork {
  double macs = 0;
  double bytes = 0;
  bool is_float = false;
};
CountedWork CountWork(const Program& program, const Instruction& instruction);

// Whether all that the program computes is exact: the same bytes on every processor.
bool IsExact(const Program& program);

double CountedSeconds(const ProcessorRates& rates, const CountedWork& work);

}  // namespace runnel
