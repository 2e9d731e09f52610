#pragma once

// Measures one direction of the path between central and a worker before the first plan: a train of
// pieces crosses it, and the receiver looks at their arrival times (link/bandwidth.h). It needs no
// data link and no clock of the sender.

#include <cstdint>
#include <vector>

#include "proto/transport/control/control.h"
#include "proto/transport/link/bandwidth.h"

namespace runnel {

// About so many bytes, in kProbePieces pieces. answer_bytes: of the train that should come back.
std::vector<ProbePiece> MakeProbeTrain(int64_t bytes, int64_t answer_bytes = 0);

// Receives trains, one after the other. Pieces of a train that lacks some count for nothing.
class ProbeReceiver {
 public:
  // True: the train is complete.
  bool Add(const ProbePiece& piece);
  // The measurement of the last complete train.
  const WayMeasured& measured() const { return measured_; }

 private:
  ArrivalRecorder recorder_;
  int64_t next_ = 0;  // index
  WayMeasured measured_;
};

}  // namespace runnel
