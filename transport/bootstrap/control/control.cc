#include "transport/bootstrap/control/control.h"

#include <utility>

#include "base/text.h"
#include "transport/bootstrap/control/control_service.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/control/solo_control.h"

namespace tutti {

Agreed agreed_in(AgreementEnd end) {
  if (auto* error = std::get_if<Error>(&end)) throw std::move(*error);
  return std::get<Agreed>(std::move(end));
}

std::shared_ptr<Control> Control::connect(const Job& job) {
  if (job.size < 1 || job.rank < 0 || job.rank >= job.size) {
    throw Error(ErrorCode::bootstrap,
                cat("rank ", job.rank, " does not exist in a job of ", job.size, " ranks"),
                {.remedy = "RANK counts from 0 to WORLD_SIZE - 1"});
  }
  if (job.fanout < 1) {
    throw Error(ErrorCode::bootstrap, cat("TUTTI_CONTROL_FANOUT=", job.fanout, " is less than 1"));
  }
  if (job.size == 1) return std::make_shared<bootstrap::SoloControl>();
  auto control = std::make_shared<bootstrap::ControlService>(job);
  control->wait_until_linked();
  return control;
}

std::string Control::describe(int rank) const { return bootstrap::describe(rank, peer(rank)); }

}  // namespace tutti
