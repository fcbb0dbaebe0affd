#include "ft_tuner.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "../common.h"
#include "../parameter_manager.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

constexpr double kMb = 1 << 20;

int64_t Bytes(const FtChoice& choice) { return static_cast<int64_t>(choice.threshold_mb * kMb); }

// As Horovod reads them: what the user has set is not tuned.
bool IsWanted() {
  const char* autotune = std::getenv(HOROVOD_AUTOTUNE);
  return autotune != nullptr && std::strtol(autotune, nullptr, 10) > 0 &&
         std::getenv(HOROVOD_FUSION_THRESHOLD) == nullptr;
}

FtNote NoteOf(const FtChoice& choice) {
  std::ostringstream signature;
  signature << "tunes HOROVOD_FUSION_THRESHOLD to " << Bytes(choice);
  if (choice.over != 0) {
    signature << ", the best";
  }
  if (choice.score > 0) {
    signature << "; the one before: " << choice.score << " MB/s"; // bytes a microsecond
  }
  auto* bytes = reinterpret_cast<const char*>(&choice);
  return {HVDFT_TUNED, std::string(bytes, sizeof choice), signature.str()};
}

FtChoice ChoiceOf(const hvdft_record& record) {
  FtChoice choice;
  std::memcpy(&choice, record.response, sizeof choice);
  return choice;
}

} // namespace

FtTuner::FtTuner() = default;
FtTuner::~FtTuner() = default;

void FtTuner::Start(ParameterManager& parameters) {
  wanted_ = IsWanted();
  parameters_ = &parameters;
  tuning_.reset();
  choices_ = FtChoices();
}

void FtTuner::Follow() {
  if (!wanted_) {
    return;
  }
  ReadLog();
  if (tuning_ == nullptr) {
    TakeUp();
  }
}

void FtTuner::ReadLog() {
  hvdft_record record;
  for (int code;
       (code = ft().worker_note(HVDFT_TUNED, choices_.Logged(), &record)) != HVDFT_AGAIN;) {
    FtCheck(code);
    choices_.Read(ChoiceOf(record));
  }
}

// Goes to where the log has tuning. Horovod's tuner writes its own log file anew.
void FtTuner::TakeUp() {
  tuning_ = std::make_unique<ParameterManager>();
  tuning_->SetCycleTimeMs(parameters_->CycleTimeMs(), true);
  tuning_->SetHierarchicalAllreduce(false, true);
  tuning_->SetHierarchicalAllgather(false, true);
  tuning_->SetTorusAllreduce(false, true);
  tuning_->SetCacheEnabled(false, true);
  const char* file = std::getenv(HOROVOD_AUTOTUNE_LOG);
  tuning_->Initialize(0, 0, file == nullptr ? "" : file);
  tuning_->SetAutoTuning(true);
  auto& known = choices_.All();
  if (known.empty()) {
    Choose();
    return;
  }
  for (size_t i = 1; i < known.size(); ++i) {
    tuning_->Repeat(known[i].score, known[i].threshold_mb, known[i].over != 0);
  }
  Use();
}

void FtTuner::Choose() {
  if (choices_.All().size() + 1 == HVDFT_NOTES) {
    tuning_->SetAutoTuning(false); // the log takes no more after this one
  }
  auto now = tuning_->GetParams();
  choices_.Add({now.tensor_fusion_threshold, tuning_->LastScore(), now.active ? 0u : 1u});
  Use();
}

void FtTuner::Use() {
  parameters_->SetTensorFusionThresholdBytes(Bytes(choices_.All().back()));
  tuning_->Reset();
}

std::vector<FtNote> FtTuner::TakeUnproposed() {
  std::vector<FtNote> notes;
  for (auto& choice : choices_.TakeUnproposed()) {
    notes.push_back(NoteOf(choice));
  }
  return notes;
}

// Horovod's own way to ask for names and bytes fails where this rank has joined.
void FtTuner::Observe(const ResponseList& begun) {
  if (tuning_ == nullptr || !tuning_->IsAutoTuning()) {
    return;
  }
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (auto& response : begun.responses()) {
    if (response.response_type() == Response::ALLREDUCE) {
      auto& all = response.tensor_names();
      names.insert(names.end(), all.begin(), all.end());
      for (int64_t elements : response.tensor_sizes()) {
        bytes += elements * static_cast<int64_t>(DataType_Size(response.tensor_type()));
      }
    }
  }
  if (tuning_->Update(names, bytes)) {
    Choose();
  }
}

} // namespace common
} // namespace horovod
