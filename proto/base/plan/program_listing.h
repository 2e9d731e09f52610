#pragma once

// Which processor of a device runs which instruction of a stage, for people. Pure data; any thread.

#include <cstdint>
#include <string>
#include <vector>

namespace runnel {

struct ProgramLine {
  std::string part;         // "forward", ...
  int layer = 0;            // of the model
  int op = 0;               // of the layer
  std::string instruction;  // empty: what follows the part's last one, a switch back to the host
  std::string processor;
  double seconds = 0;     // of the instruction; copies to and from other parts included
  bool switches = false;  // the line before is on another processor, or the part begins on one
  double switch_seconds = 0;
  int64_t switch_bytes = 0;
  int64_t split = 0;  // samples of a slice of the batch; 0: whole
  // When the switch, or else the instruction, begins after the begin of its part; below 0: of a
  // weight-gradient, so long before the input-gradient ends.
  double begin_seconds = 0;

  friend bool operator==(const ProgramLine&, const ProgramLine&) = default;
};

struct ProgramListing {
  int first_layer = 0;
  int last_layer = 0;
  int64_t samples = 0;                  // of a micro-batch
  std::vector<std::string> processors;  // each with where its costs come from: "cpu (measured)"
  std::vector<ProgramLine> lines;       // part by part, in the order in which they begin

  friend bool operator==(const ProgramListing&, const ProgramListing&) = default;
};

// From the begin of a part to its end, or of all parts (empty). A weight-gradient begins when the
// input-gradient ends; what runs before that takes no time of its own.
double SecondsOf(const ProgramListing& listing, const std::string& part);
// Of the lines of one part, added up.
double WorkSecondsOf(const ProgramListing& listing, const std::string& part);

// A table: one line an instruction, with what runs beside it on other processors; then one a part
// with its time, its switches and how many instructions each processor has.
std::string ToText(const ProgramListing& listing);

// One line: what each processor has of all parts, what switches take, who gets nothing.
std::string SummaryOf(const ProgramListing& listing);

}  // namespace runnel
