// What the reports' page uses of ECharts; everything else is left out of the bundle.
import { init, use, graphic } from 'echarts/core';
import { BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart } from 'echarts/charts';
import { AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent,
         TooltipComponent, VisualMapComponent } from 'echarts/components';
import { CanvasRenderer } from 'echarts/renderers';

use([BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart, AriaComponent,
     DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent,
     VisualMapComponent, CanvasRenderer]);

export { init, graphic };
