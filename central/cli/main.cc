// runnel-central: the node that holds the data, plans, feeds and watches the training.

#include "central/cli/command_main.h"

int main(int argc, char** argv) {
  using namespace runnel;
  return RunProgram(
      {.name = "runnel-central",
       .about = "Runnel trains one deep network across the devices that you own.",
       .commands = {AddTrain,     AddServe,  AddPlan,    AddShow,   AddCheck,   AddLearn,
                    AddPrecision, AddResume, AddReplay,  AddEval,   AddPredict, AddQuantize,
                    AddExport,    AddInit,   AddToken,   AddRevoke, AddStatus,  AddWhy,
                    AddTrace,     AddWhatIf, AddDevices, AddDrain,  AddPause,   AddContinue,
                    AddReplan,    AddStop},
       .moved = {"simulate", "profile", "predictor-report", "codecs"}},
      argc, argv);
}
