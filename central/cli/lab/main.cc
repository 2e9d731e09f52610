// runnel-lab: what those who work on Runnel itself ask: simulations, profiles of devices, reports.

#include "central/cli/command_main.h"
#include "central/cli/lab/lab_commands.h"

int main(int argc, char** argv) {
  using namespace runnel;
  return RunProgram(
      {.name = "runnel-lab",
       .about = "Simulates, measures and judges what Runnel plans, predicts and sends.",
       .commands = {AddSimulate, AddProfile, AddPredictorReport, AddCodecs}},
      argc, argv);
}
