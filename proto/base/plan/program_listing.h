#pragma once

// A listing of a stage's instructions and the processor of each, for people. Pure data; any thread.

#include <cstdint>
#include <string>
#include <vector>

namespace runnel {

struct ProgramLine {
  std::string part;         // "forward", ...
  int layer = 0;            // layer of the model
  int op = 0;               // operator of the layer
  std::string instruction;  // empty: what follows the part's last one, a switch back to the host
  std::string processor;
  double seconds = 0;     // seconds of the instruction, including copies to and from other parts
  bool switches = false;  // the line before is on another processor, or the part begins on one
  double switch_seconds = 0;
  int64_t switch_bytes = 0;
  int64_t split = 0;  // samples of a slice of the batch; 0: whole
  // Start of the switch, or else of the instruction, after the start of its part; below 0: a
  // weight-gradient that starts this long before the input-gradient ends.
  double begin_seconds = 0;

  friend bool operator==(const ProgramLine&, const ProgramLine&) = default;
};

struct ProgramListing {
  int first_layer = 0;
  int last_layer = 0;
  int64_t samples = 0;                  // samples of a micro-batch
  std::vector<std::string> processors;  // each with the source of its costs: "cpu (measured)"
  std::vector<ProgramLine> lines;       // part by part, in the order in which they begin

  friend bool operator==(const ProgramListing&, const ProgramListing&) = default;
};

// Seconds from the start of a part to its end, or of all parts (empty). A weight-gradient starts
// when the input-gradient ends; work before that takes no time of its own.
double SecondsOf(const ProgramListing& listing, const std::string& part);
// Sum of the seconds of a part's lines.
double WorkSecondsOf(const ProgramListing& listing, const std::string& part);

// A table: one line an instruction, with what runs beside it on other processors; then one a part
// with its time, its switches and how many instructions each processor has.
std::string ToText(const ProgramListing& listing);

// One line: the share of each processor in all parts, the time of switches, and unused processors.
std::string SummaryOf(const ProgramListing& listing);

}  // namespace runnel
