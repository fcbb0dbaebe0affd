// Autotuning (HOROVOD_AUTOTUNE): Horovod's ParameterManager chooses the fusion threshold while
// training runs. Its other parameters mean nothing on ft and are fixed.
//
// Only the coordinator fuses, so only it tunes. Each choice is a note in the op log (HVDFT_TUNED)
// with the score of the choice before. So a restarted coordinator repeats the choices, without
// measuring anything again, and continues behind the latest one.
#ifndef HOROVOD_FT_TUNER_H
#define HOROVOD_FT_TUNER_H

#include <memory>
#include <vector>

#include "ft_agreed.h"
#include "ft_choices.h"

namespace horovod {
namespace common {

class ParameterManager;

class FtTuner {
public:
  FtTuner();
  ~FtTuner();

  // A session begins. `parameters`: Horovod's, by which it fuses.
  void Start(ParameterManager& parameters);

  // The following functions are the coordinator's.

  void StartTerm() { choices_.StartTerm(); }
  // Before it negotiates, for which it has executed the whole log.
  void Follow();
  // What the next proposal of the global process set takes into the log.
  std::vector<FtNote> TakeUnproposed();
  // Ops of the global process set are about to begin.
  void Observe(const ResponseList& begun);

private:
  void ReadLog();
  void TakeUp();
  void Choose();
  void Use();

  bool wanted_ = false;
  ParameterManager* parameters_ = nullptr;
  std::unique_ptr<ParameterManager> tuning_;
  FtChoices choices_;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_TUNER_H
