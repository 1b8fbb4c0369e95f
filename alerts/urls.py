from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from alerts import views

urlpatterns = [
    path("alert-channels", views.ChannelList.as_view()),
    path("alert-channels/<id:channel_id>", views.ChannelDetail.as_view()),
    path("alert-channels/<id:channel_id>/test", views.ChannelTest.as_view()),
    path("alert-channels/<id:channel_id>/deliveries", views.ChannelDeliveries.as_view()),
    path("alert-channels/<id:channel_id>/deliveries/<id:delivery_id>/replay", views.DeliveryReplay.as_view()),
]
