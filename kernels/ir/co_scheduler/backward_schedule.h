#pragma once

// The weight-gradients of a program on the processors where they and the input-gradients together
// are done first. Pure functions; any thread.

#include "kernels/ir/co_scheduler/chain_schedule.h"
#include "kernels/ir/co_scheduler/gradient_placement.h"
#include "kernels/ir/co_scheduler/program_schedule.h"
#include "kernels/ir/co_scheduler/value_flow.h"

namespace runnel {

// The lanes of a backward whose input-gradients `schedule` has already. `chain`: of
// kWeightGradient. What the host computes of input-gradients can be cut anywhere, so that what it
// wrote so far can be used; on another processor only where another one goes on. The host computes
// weight-gradients once all input-gradients are done; another processor once its own are.
struct BackwardLanes {
  GradientLanes lanes;
  std::vector<int> items;  // by instruction of kWeightGradient: the number of its item
  // By item: the last instruction of kInputGradient on the host whose result it reads; -1: none.
  std::vector<int> waits_for;
};
BackwardLanes MakeLanes(const ProgramFlow& flow, const InstructionChain& chain,
                        const ProgramSchedule& schedule);

// Places kWeightGradient, which begins as `start` says by instruction, and cuts kInputGradient
// where that lets weight-gradients begin. Where nothing ends before `start` does, that stays; so it
// does, one after the other, where no processor has all of an item.
void ScheduleWeightGradients(const ProgramFlow& flow, const InstructionChain& chain,
                             const std::vector<int>& start, ProgramSchedule& schedule);

}  // namespace runnel
