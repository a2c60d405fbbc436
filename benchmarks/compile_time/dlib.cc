// The networks of mlp_lenet.cc, trained by dlib.
#include <dlib/dnn.h>

using mlp = dlib::loss_multiclass_log<dlib::fc<
    10, dlib::relu<dlib::fc<64, dlib::relu<dlib::fc<128, dlib::input<dlib::matrix<float>>>>>>>>;
using planes = dlib::max_pool<
    2, 2, 2, 2,
    dlib::relu<dlib::con<
        16, 5, 5, 1, 1,
        dlib::max_pool<2, 2, 2, 2,
                       dlib::relu<dlib::con<6, 5, 5, 1, 1, dlib::input<dlib::matrix<float>>>>>>>>;
using lenet = dlib::loss_multiclass_log<
    dlib::fc<10, dlib::relu<dlib::fc<84, dlib::relu<dlib::fc<120, planes>>>>>>;

template <class Network>
double train(long rows, long columns) {
  Network network;
  dlib::dnn_trainer<Network> trainer(network, dlib::sgd(0.f, 0.f));
  trainer.set_learning_rate(0.01);
  const std::vector<dlib::matrix<float>> x(32, dlib::ones_matrix<float>(rows, columns));
  const std::vector<unsigned long> t(32, 0);
  trainer.train_one_step(x, t);
  return trainer.get_average_loss();
}

int main() { return train<mlp>(784, 1) > 0 && train<lenet>(28, 28) > 0 ? 0 : 1; }
