# kind:   a service that embeds texts: a loop over requests inside one inference_mode and one autocast block
# wrong:  half copies of all weights stay for as long as the service runs
# expect: autocast-cache-memory
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, width=512, layers=10):
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer.linear2(torch.relu(layer.linear1(layer.norm1(hidden)))))
            hidden = hidden + layer.self_attn.out_proj(hidden)
        return hidden.mean(1)


def serve(model, requests):
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for tokens in requests:
            yield model(tokens).float()


model = Encoder(width=1024, layers=6)
for vector in serve(model, [torch.randint(0, 100, (1, 4)) for _ in range(6)]):
    print(vector.norm().item())
